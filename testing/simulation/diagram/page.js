// Draws one run. The parts of this script: the history is opened; what is shown is chosen; places are computed; the
// canvas is drawn; and then what a reader does. Times are microseconds since the run began. Texts of the history are set
// as text, never as markup.

const FORMAT = 1;
const SECOND = 1_000_000;
const ALL = -1;
const NO_REPLICA = -2;

// -- the history

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const history = JSON.parse(await new Response(stream).text());
  if (history.format !== FORMAT) throw new Error(`this page reads format ${FORMAT}, the history has ${history.format}`);
  return history;
}

function sums(differences) {
  const values = new Float64Array(differences.length);
  let sum = 0;
  differences.forEach((difference, index) => (values[index] = sum += difference));
  return values;
}

/** The messages with their times, and for each request its response. */
function withTimes(messages) {
  messages.count = messages.began.length;
  messages.began = sums(messages.began);
  messages.ended = messages.took.map((took, index) => messages.began[index] + took);
  messages.request = messages.answers.map((distance, index) => (distance ? index - distance : ALL));
  messages.response = new Int32Array(messages.count).fill(ALL);
  messages.request.forEach((request, index) => {
    if (request !== ALL) messages.response[request] = index;
  });
  return messages;
}

function withReplicas(replicas) {
  for (const brokers of Object.values(replicas)) {
    for (const held of Object.values(brokers)) {
      held.at = sums(held.at);
      held.end = sums(held.end);
      held.highWatermark = sums(held.highWatermark);
    }
  }
  return replicas;
}

/** The page says what is wrong with its history. */
function fail(error) {
  document.getElementById("title").textContent = `The history cannot be read: ${error.message || error}`;
  document.documentElement.dataset.failed = "history";
  throw error;
}

const history = await unpack(document.getElementById("history").textContent).catch(fail);
const messages = withTimes(history.messages);
const replicas = withReplicas(history.replicas);
const parties = history.parties.map(([name, role, purpose]) => ({ name, role, purpose }));
const brokers = parties.map((party, index) => index).filter((index) => parties[index].role === "broker");
const brokerIds = new Map(brokers.map((index) => [index, Number(parties[index].name.split("-")[1])]));

/** The last index at which sorted `values` are at most `value`; -1 if there is none. */
function lastUpTo(values, value, length = values.length) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

const seconds = (time) => (time / SECOND).toFixed(3);
const isLost = (index) => messages.lost[index] !== 0;
const errorOf = (index) => messages.texts[messages.errors[index]];
const apiOf = (index) => messages.apis[messages.api[index]];
const partitionName = ([topic, number]) => (number < 0 ? topic : `${topic}-${number}`);

// -- what is shown

const view = {
  partition: ALL, // whose roles and offsets are shown
  onlyPartition: true, // and whether other messages are hidden
  party: ALL,
  api: ALL,
  onlyTrouble: false,
  moment: 0,
  span: Infinity, // around the moment
  axis: "messages",
  zoom: 1,
  message: ALL, // the selected one
  line: ALL, // of the story
};

/** For each message whether a row of it is about the chosen partition, or about its whole topic. */
function isAboutPartition() {
  const chosen = history.partitions[view.partition];
  const fits = messages.rowLists.map((rows) =>
    rows.some(([partition]) => {
      const [topic, number] = history.partitions[partition];
      return partition === view.partition || (number < 0 && topic === chosen[0]);
    }),
  );
  return (index) => fits[messages.rows[index]];
}

/** The numbers of the messages that the filters let through, in the order of time. */
function choose() {
  const from = view.moment - view.span;
  const until = view.moment + view.span;
  const isAbout = view.partition !== ALL && view.onlyPartition ? isAboutPartition() : () => true;
  const isTrouble = (index) => isLost(index) || errorOf(index) !== "";

  // A request and its response stay together.
  const either = (test, index) => {
    const other = messages.request[index] === ALL ? messages.response[index] : messages.request[index];
    return test(index) || (other !== ALL && test(other));
  };

  const chosen = [];
  for (let index = 0; index < messages.count; index++) {
    if (messages.began[index] > until || messages.ended[index] < from) continue;
    if (view.party !== ALL && messages.from[index] !== view.party && messages.to[index] !== view.party) continue;
    if (view.api !== ALL && messages.api[index] !== view.api) continue;
    if (view.onlyTrouble && !either(isTrouble, index)) continue;
    if (!either(isAbout, index)) continue;
    chosen.push(index);
  }
  return chosen;
}

// -- places

const AXIS_WIDTH = 74;
const BODY = { broker: 84, store: 14, client: 10 };
const GAP = { broker: 112, store: 76, client: 46 }; // to the right of the lane, at least
const SPARE_MAX = 170; // more of it, where the window is wide
const HEADS_HEIGHT = 96;
const LABEL_WIDTH_MAX = 240;
const MARGIN = 24; // above the first event, and below the last one
const VIOLATION_ROOM = 24; // below its line, for its words
const CLOCK_PIXELS = 400; // a second, at first
const DENSE = 160; // so many arrows on the screen get no words, and are faint
const HEIGHT_MAX = 12_000_000; // browsers draw no taller element

const places = {
  lanes: new Map(), // party -> {left, right}
  width: 0,
  height: 0,
  chosen: [],
  startY: new Float64Array(0), // of each chosen message
  endY: new Float64Array(0),
  times: [0, 1], // of the events, rising, and where they are
  ys: [0, 1],
};

/** The columns: the store, the brokers, then every client that has a message here. */
function placeLanes(width) {
  const seen = new Set(brokers);
  const store = parties.findIndex((party) => party.role === "store");
  seen.add(store);
  for (const index of places.chosen) seen.add(messages.from[index]).add(messages.to[index]);
  const order = [store, ...brokers, ...[...seen].filter((party) => parties[party].role === "client").sort((a, b) => a - b)];

  const needed = order.reduce((sum, party) => sum + BODY[parties[party].role] + GAP[parties[party].role], AXIS_WIDTH);
  const spare = Math.min(Math.max(0, width - needed - 8) / (brokers.length + 1), SPARE_MAX);
  let left = AXIS_WIDTH;
  places.lanes = new Map();
  for (const party of order) {
    const { role } = parties[party];
    places.lanes.set(party, { left, right: left + BODY[role] });
    left += BODY[role] + GAP[role] + (role === "client" ? 0 : spare);
  }
  places.width = left - GAP[parties[order.at(-1)].role] + 40;
}

const VIOLATION = -2; // stands for one among events

/** Whether something about this partition, or about none, belongs to what is shown. */
const isHere = (partition) => view.partition === ALL || partition === ALL || partition === view.partition;

/** How many pixels lie between two events. */
const between = (time) => (time <= 0 ? 4 : 3 + 7 * Math.log10(1 + time / 100)) * view.zoom;

/** Everything that happens to the chosen partition and to brokers, beside messages. */
function otherTimes(from, until) {
  const times = history.story.map(([at]) => at);
  for (const states of Object.values(history.states)) times.push(...states.map(([at]) => at));
  for (const held of Object.values(replicas[view.partition] ?? {})) times.push(...held.at);
  return times.filter((time) => time >= from && time <= until);
}

/** Where each event is: each one has a place of its own, so that messages of one moment do not hide each other. */
function placeByMessages() {
  const { chosen } = places;
  const from = Math.max(0, view.moment - view.span);
  const until = Math.min(history.end, view.moment + view.span);
  const events = [];
  chosen.forEach((index, place) => {
    events.push([messages.began[index], place, true]);
    events.push([Math.min(messages.ended[index], Math.max(until, messages.began[index])), place, false]);
  });
  for (const time of otherTimes(from, until)) events.push([time, ALL, false]);
  for (const [at, , , partition] of history.violations) {
    if (isHere(partition) && at >= from && at <= until) events.push([at, VIOLATION, false]);
  }
  events.push([from, ALL, false], [until, ALL, false]);
  events.sort((one, other) => one[0] - other[0]);

  places.times = [];
  places.ys = [];
  let before = events[0][0];
  let y = MARGIN;
  let wasStart = false;
  for (const [time, place, isStart] of events) {
    // Ends of one moment share a line, and so does what is not a message; starts do not.
    if (time > before || (isStart && wasStart)) y += between(time - before);
    wasStart = isStart;
    before = time;
    if (place >= 0) (isStart ? places.startY : places.endY)[place] = y;
    places.times.push(time);
    places.ys.push(y);
    if (place === VIOLATION) y += VIOLATION_ROOM;
  }
  places.height = y + MARGIN;
}

/** Where each event is if equal times are equally long. */
function placeByClock() {
  const from = Math.max(0, view.moment - view.span);
  const until = Math.min(history.end, view.moment + view.span);
  const fitting = (HEIGHT_MAX - 2 * MARGIN) / Math.max(1, until - from);
  const scale = Math.min(fitting, (CLOCK_PIXELS * view.zoom ** 3) / SECOND);
  places.times = [from, Math.max(until, from + 1)];
  places.ys = places.times.map((time) => MARGIN + (time - from) * scale);
  places.chosen.forEach((index, place) => {
    places.startY[place] = yAt(messages.began[index]);
    places.endY[place] = yAt(messages.ended[index]);
  });
  places.height = places.ys[1] + MARGIN;
}

/** Where a time is: behind all events of that moment, or before them. */
function yAt(time, isBefore = false) {
  const { times, ys } = places;
  let index = lastUpTo(times, time);
  while (isBefore && index > 0 && times[index - 1] === time) index--;
  if (isBefore && times[index] === time) return ys[index];
  if (index < 0) return ys[0] - MARGIN;
  if (index >= times.length - 1) return ys.at(-1) + (time > times.at(-1) ? MARGIN : 0);
  const share = (time - times[index]) / (times[index + 1] - times[index] || 1);
  return ys[index] + share * (ys[index + 1] - ys[index]);
}

function timeAt(y) {
  const { times, ys } = places;
  const index = Math.min(Math.max(lastUpTo(ys, y), 0), times.length - 2);
  const share = Math.min(Math.max((y - ys[index]) / (ys[index + 1] - ys[index] || 1), 0), 1);
  return times[index] + share * (times[index + 1] - times[index]);
}

// -- the canvas

const diagram = document.getElementById("diagram");
const track = document.getElementById("track");
const canvas = document.getElementById("canvas");
const heads = document.getElementById("heads");
const pen = canvas.getContext("2d");
const headPen = heads.getContext("2d");

const COLOUR_NAMES = [
  "paper", "panel", "ink", "dim", "rule", "focus", "selected", "leader", "follower", "out-of-sync", "no-replica", "down",
  "produce", "replicate", "consume", "control", "group", "store", "other", "violation", "fault", "log-end",
  "high-watermark", "uncommitted",
];
let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = Object.fromEntries(COLOUR_NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// API -> the colour of its arrows. A Fetch has one of two, and messages with the store their own.
const FAMILY = {
  produce: ["Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit",
    "WriteTxnMarkers"],
  control: ["LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition", "ControlledShutdown",
    "AllocateProducerIds"],
  group: ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch",
    "OffsetDelete"],
  replicate: ["OffsetForLeaderEpoch"],
};
const familyOfApi = new Map(Object.entries(FAMILY).flatMap(([family, apis]) => apis.map((api) => [api, family])));

function familyOf(index) {
  const api = apiOf(index);
  if (api.startsWith("store ")) return "store";
  if (api !== "Fetch") return familyOfApi.get(api) ?? "other";
  const isReplica = parties[messages.from[index]].role === "broker" && parties[messages.to[index]].role === "broker";
  return isReplica ? "replicate" : "consume";
}

const ROLE_WORDS = {
  leader: "leads", follower: "follows", "out-of-sync": "out of sync", "no-replica": "", down: "down",
  starting: "starts", paused: "paused",
};

/** What a broker is for the chosen partition, in segments: {from, until, role, words}. */
function roleSegments(party) {
  const cuts = [[0, "state", "down"]];
  for (const [at, state] of history.states[party] ?? []) cuts.push([at, "state", state]);
  const held = replicas[view.partition]?.[party];
  held?.at.forEach((at, index) => cuts.push([at, "held", index]));
  for (const [at, , inSync] of history.inSync[view.partition] ?? []) cuts.push([at, "inSync", inSync]);
  cuts.sort((one, other) => one[0] - other[0]);

  const now = { state: "down", held: ALL, inSync: [] };
  const segments = [];
  for (const [at, what, value] of cuts) {
    now[what] = value;
    const [role, words] = roleOf(party, now, held);
    const last = segments.at(-1);
    if (last && last.role === role && last.words === words) continue;
    if (last) last.until = at;
    segments.push({ from: at, until: Infinity, role, words });
  }
  return segments;
}

function roleOf(party, now, held) {
  if (now.state === "down") return ["down", "down"];
  if (now.state === "starting") return ["down", "starts"];
  const pause = now.state === "paused" ? "paused: " : "";
  if (!held || now.held === ALL || held.epoch[now.held] === NO_REPLICA) {
    return ["no-replica", pause ? "paused" : view.partition === ALL ? "" : "no replica"];
  }
  const epoch = held.epoch[now.held];
  if (held.leads[now.held]) return ["leader", `${pause}leads, epoch ${epoch}`];
  const role = now.inSync.includes(brokerIds.get(party)) ? "follower" : "out-of-sync";
  return [role, `${pause}${ROLE_WORDS[role]}`];
}

let segmentsOf = new Map();

function hatch(context, left, top, width, height, colour, step = 7) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();

  // The lines stand still when the diagram scrolls: they begin at multiples of `step` of the whole diagram.
  const offset = (diagram.scrollTop % step) + step;
  for (let y = top - width - ((top + offset) % step); y < top + height + step; y += step) {
    context.moveTo(left, y + width);
    context.lineTo(left + width, y);
  }
  context.stroke();
  context.restore();
}

/** Boxes that are taken by labels; a label that has no room is not drawn. */
class Room {
  constructor() {
    this.boxes = [];
  }

  take(left, top, width, height) {
    const isFree = this.boxes.every(
      ([l, t, w, h]) => left + width < l || l + w < left || top + height <= t || t + h <= top,
    );
    if (isFree) this.boxes.push([left, top, width, height]);
    return isFree;
  }
}

function write(text, x, y, colour, { align = "left", room = null, back = true } = {}) {
  const width = pen.measureText(text).width;
  const left = align === "left" ? x : align === "right" ? x - width : x - width / 2;
  if (room && !room.take(left - 2, y - 9, width + 4, 12)) return false;
  if (back) {
    pen.globalAlpha = 0.82;
    pen.fillStyle = colours.paper;
    pen.fillRect(left - 1, y - 9, width + 2, 12);
    pen.globalAlpha = 1;
  }
  pen.fillStyle = colour;
  pen.fillText(text, left, y);
  return true;
}

let isDue = false;

function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    drawNow();
  });
}

function fit(element, context, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
}

function drawNow() {
  const width = diagram.clientWidth;
  const height = diagram.clientHeight;
  fit(canvas, pen, width, height);
  pen.font = "11px system-ui, sans-serif";
  const top = diagram.scrollTop;
  const window_ = { top, bottom: top + height, left: diagram.scrollLeft, from: timeAt(top), until: timeAt(top + height) };
  const room = new Room();

  drawAxis(window_, width);
  pen.save();
  pen.beginPath();
  pen.rect(AXIS_WIDTH - 12, 0, width, height);
  pen.clip();
  pen.translate(-window_.left, 0);
  for (const [party, lane] of places.lanes) drawLane(party, lane, window_);
  drawTroubles(window_, room);
  const scale = offsetScale(window_);
  if (scale) for (const party of brokers) drawOffsets(party, places.lanes.get(party), window_, scale, room);
  drawArrows(window_, room);
  pen.restore();
  drawHeads(window_, width, scale);
}

function drawAxis({ top, bottom }, width) {
  pen.textBaseline = "alphabetic";
  let last = -Infinity;
  const { times, ys } = places;

  // By the clock there are two events, the first and the last: round times between them are written.
  if (view.axis === "clock") {
    const pixels = (ys[1] - ys[0]) / (times[1] - times[0]);
    const step = 10 ** Math.ceil(Math.log10(45 / pixels));
    for (let time = Math.ceil(timeAt(top) / step) * step; yAt(time) < bottom && time <= times[1]; time += step) {
      drawTick(time, yAt(time) - top, width);
    }
    return;
  }
  for (let index = Math.max(0, lastUpTo(ys, top)); index < ys.length && ys[index] < bottom; index++) {
    if (ys[index] - last < 40 || ys[index] < top) continue;
    last = ys[index];
    drawTick(times[index], last - top, width);
  }
}

function drawTick(time, y, width) {
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(AXIS_WIDTH - 16, Math.round(y) + 0.5);
  pen.lineTo(width, Math.round(y) + 0.5);
  pen.stroke();
  write((time / SECOND).toFixed(4), AXIS_WIDTH - 20, y + 4, colours.dim, { align: "right", back: false });
}

function drawLane(party, lane, { top, bottom }) {
  const width = lane.right - lane.left;
  const { role } = parties[party];
  if (role !== "broker") {
    pen.fillStyle = colours["no-replica"];
    pen.fillRect(lane.left, 0, width, bottom - top);
    pen.strokeStyle = colours.rule;
    pen.strokeRect(lane.left + 0.5, -1, width - 1, bottom - top + 2);
    return;
  }
  for (const segment of segmentsOf.get(party)) {
    const begin = Math.max(yAt(segment.from), top) - top;
    const end = Math.min(yAt(segment.until), bottom) - top;
    if (end <= begin) continue;
    pen.fillStyle = colours[segment.role];
    pen.fillRect(lane.left, begin, width, end - begin);
    if (segment.words.startsWith("paused")) hatch(pen, lane.left, begin, width, end - begin, colours.dim, 9);
    pen.strokeStyle = colours.ink;
    pen.globalAlpha = 0.5;
    pen.lineWidth = 1;
    pen.strokeRect(lane.left + 0.5, begin - 0.5, width - 1, end - begin);
    pen.globalAlpha = 1;
  }
}

/** Faults as hatching along their lanes, cuts as bars at both ends of the link; words at the beginning. */
function drawTroubles({ top, bottom, from, until }, room) {
  for (const [began, ended, kind, marked] of history.faults) {
    if (began > until || ended < from) continue;
    const begin = yAt(began) - top;
    const height = Math.max(yAt(ended) - top - begin, 8);
    for (const party of marked) {
      const lane = places.lanes.get(party);
      if (!lane) continue;
      hatch(pen, lane.left - 9, begin, 8, height, colours.fault, 6);
      const y = Math.max(begin, 0) + 10;
      write(kind, lane.left - 12, y, colours.fault, { align: "right", room });
    }
  }
  pen.fillStyle = colours.fault;
  for (const [source, target, began, ended] of history.cuts) {
    if (began > until || ended < from) continue;
    const begin = Math.max(yAt(began) - top, -1);
    const height = Math.min(yAt(ended), bottom) - top - begin;
    const ends = [places.lanes.get(source), places.lanes.get(target)];
    if (!ends[0] || !ends[1]) continue;
    const isRight = ends[0].left < ends[1].left;
    pen.fillStyle = colours.fault;
    pen.fillRect(isRight ? ends[0].right + 1 : ends[0].left - 4, begin, 3, height);
    pen.fillRect(isRight ? ends[1].left - 4 : ends[1].right + 1, begin, 3, height);
  }
}

/** The offsets that the chosen partition has in this window, on all brokers: a common scale. */
function offsetScale({ from, until }) {
  let low = Infinity;
  let high = -Infinity;
  for (const held of Object.values(replicas[view.partition] ?? {})) {
    const last = lastUpTo(held.at, until);
    for (let index = Math.max(0, lastUpTo(held.at, from)); index <= last; index++) {
      if (held.epoch[index] === NO_REPLICA || held.end[index] < 0) continue;
      low = Math.min(low, held.highWatermark[index], held.end[index]);
      high = Math.max(high, held.end[index]);
    }
  }
  if (high < 0) return null;

  // In steps, so that lines do not move with each pixel that is scrolled.
  const step = Math.max(5, 10 ** Math.floor(Math.log10(Math.max(high - low, 1))));
  return { low: Math.floor(Math.max(0, low) / step) * step, high: Math.max(Math.ceil((high + 0.1) / step) * step, 5) };
}

function drawOffsets(party, lane, { top, bottom, from, until }, scale, room) {
  const held = replicas[view.partition]?.[party];
  if (!held) return;
  const left = lane.left + 6;
  const width = lane.right - lane.left - 12;
  const xOf = (offset) => left + (width * (Math.max(offset, scale.low) - scale.low)) / (scale.high - scale.low);
  const segments = segmentsOf.get(party);
  const last = lastUpTo(held.at, until);
  const first = Math.max(0, lastUpTo(held.at, from));

  for (let index = first; index <= last; index++) {
    if (held.epoch[index] === NO_REPLICA || held.end[index] < 0) continue;
    const begin = Math.max(yAt(held.at[index]), top - 10) - top;
    const next = index + 1 < held.at.length ? held.at[index + 1] : Infinity;
    const end = Math.min(yAt(next), bottom + 10) - top;
    const right = xOf(held.end[index]);
    const middle = xOf(held.highWatermark[index]);
    pen.fillStyle = colours.uncommitted;
    pen.fillRect(middle, begin, right - middle, end - begin);
    step(held, index, held.end, right, begin, end, xOf, "log-end", 2);
    step(held, index, held.highWatermark, middle, begin, end, xOf, "high-watermark", 2);
  }

  // A dead broker's log lies still: what is drawn over is what it would say.
  for (const segment of segments.filter((each) => each.role === "down")) {
    const begin = Math.max(yAt(segment.from), top) - top;
    const end = Math.min(yAt(segment.until), bottom) - top;
    if (end <= begin) continue;
    pen.fillStyle = colours.down;
    pen.fillRect(lane.left + 1, begin, lane.right - lane.left - 2, end - begin);
  }
  nameSegments(segments, lane, top, bottom, room);
  nameOffsets(held, first, last, xOf, lane, top, room);
}

function step(held, index, values, x, begin, end, xOf, colour, width) {
  pen.strokeStyle = colours[colour];
  pen.lineWidth = width;
  pen.beginPath();
  if (index > 0 && held.epoch[index - 1] !== NO_REPLICA && values[index - 1] >= 0) pen.moveTo(xOf(values[index - 1]), begin);
  else pen.moveTo(x, begin);
  pen.lineTo(x, begin);
  pen.lineTo(x, end);
  pen.stroke();
}

function nameSegments(segments, lane, top, bottom, room) {
  pen.font = "600 11px system-ui, sans-serif";
  for (const { from, until, words } of segments) {
    const begin = Math.max(yAt(from), top) - top;
    const end = Math.min(yAt(until), bottom) - top;
    if (words && end - begin >= 14) {
      write(words, (lane.left + lane.right) / 2, begin + 12, colours.ink, { align: "center", room });
    }
  }
  pen.font = "11px system-ui, sans-serif";
}

/** The new offset beside each step, where there is room. */
function nameOffsets(held, first, last, xOf, lane, top, room) {
  for (let index = first; index <= last; index++) {
    if (held.epoch[index] === NO_REPLICA) continue;
    const y = yAt(held.at[index]) - top + 10;
    for (const [values, colour] of [[held.end, "log-end"], [held.highWatermark, "high-watermark"]]) {
      const isNew = index === 0 || values[index] !== values[index - 1];
      if (!isNew || values[index] < 0) continue;
      const x = Math.min(Math.max(xOf(values[index]), lane.left + 14), lane.right - 14);
      const isEnd = colour === "log-end";
      write(String(values[index]), isEnd ? x + 3 : x - 3, y, colours[colour], { align: isEnd ? "left" : "right", room });
    }
  }
}

/** Where a message is drawn: from the near side of one lane to the near side of the other. */
function lineOf(place) {
  const index = places.chosen[place];
  const source = places.lanes.get(messages.from[index]);
  const target = places.lanes.get(messages.to[index]);
  const isRight = source.left < target.left;
  const line = {
    x0: isRight ? source.right : source.left,
    y0: places.startY[place],
    x1: isRight ? target.left : target.right,
    y1: places.endY[place],
    isRight,
  };
  if (!isLost(index)) return line;

  // A lost message ends before it is there, and not far below where it began.
  line.x1 = line.x0 + (line.x1 - line.x0) * 0.6;
  line.y1 = Math.min(line.y1, line.y0 + 30);
  return line;
}

function drawArrows({ top, bottom }, room) {
  const drawn = [];
  for (let place = 0; place < places.chosen.length; place++) {
    if (places.startY[place] > bottom) break;
    if (places.endY[place] >= top) drawn.push(place);
  }
  const isChosen = (index) =>
    view.message !== ALL && [view.message, messages.response[view.message], messages.request[view.message]].includes(index);
  const isDense = drawn.length > DENSE;
  const faintness = isDense ? Math.max(0.06, (0.8 * DENSE) / drawn.length) : 0.8;
  for (const place of drawn) drawArrow(place, top, isChosen(places.chosen[place]), faintness);

  // Words of what matters get their room first.
  const weight = (place) => {
    const index = places.chosen[place];
    return (isChosen(index) ? 4 : 0) + (isLost(index) || errorOf(index) ? 2 : 0) + (messages.request[index] === ALL ? 1 : 0);
  };
  for (const place of drawn.sort((one, other) => weight(other) - weight(one) || one - other)) {
    const { x0, y0, x1, y1, isRight } = lineOf(place);
    const index = places.chosen[place];
    const isBad = isLost(index) || errorOf(index);
    if (isDense && !isChosen(index)) continue;
    const words = labelOf(index);
    const width = labelWidth(index, isRight);
    const shift = Math.min(8, Math.abs(x1 - x0) / 4);
    const y = y0 - top + ((y1 - y0) * shift) / Math.abs(x1 - x0 || 1) - 2;
    if (y < 9 || y > bottom - top + 12) continue;
    const colour = colours[isBad ? "violation" : familyOf(index)];
    if (isChosen(index)) pen.font = "600 11px system-ui, sans-serif";
    const label = isChosen(index) ? words : cut(words, width);
    write(label, isRight ? x0 + shift : x0 - shift, y, colour, { align: isRight ? "left" : "right", room });
    pen.font = "11px system-ui, sans-serif";
  }
}

function drawArrow(place, top, isChosen, faintness) {
  const index = places.chosen[place];
  const { x0, y0, x1, y1 } = lineOf(place);
  const isRequest = messages.request[index] === ALL;
  const lost = isLost(index);
  pen.strokeStyle = pen.fillStyle = colours[lost || errorOf(index) ? "violation" : familyOf(index)];
  pen.lineWidth = isChosen ? 3 : isRequest ? 1.4 : 1;
  pen.globalAlpha = isChosen ? 1 : lost ? Math.max(faintness, 0.5) : faintness;
  pen.setLineDash(lost ? [5, 3] : []);
  pen.beginPath();
  pen.moveTo(x0, y0 - top);
  pen.lineTo(x1, y1 - top);
  pen.stroke();
  pen.setLineDash([]);

  const angle = Math.atan2(y1 - y0, x1 - x0);
  pen.save();
  pen.translate(x1, y1 - top);
  pen.rotate(angle);
  pen.beginPath();
  if (lost) {
    pen.lineWidth = 2;
    for (const sign of [1, -1]) {
      pen.moveTo(-5, -5 * sign);
      pen.lineTo(5, 5 * sign);
    }
    pen.stroke();
  } else if (isRequest) {
    pen.moveTo(0, 0);
    pen.lineTo(-8, -3.5);
    pen.lineTo(-8, 3.5);
    pen.fill();
  } else {
    pen.moveTo(-7, -3.5);
    pen.lineTo(0, 0);
    pen.lineTo(-7, 3.5);
    pen.stroke();
  }
  pen.restore();
  pen.globalAlpha = 1;
}

/** A few words: the API of a request, and what it says of the chosen partition, or of the first one. */
function labelOf(index) {
  const rows = messages.rowLists[messages.rows[index]];
  const row = rows.find(([partition]) => partition === view.partition) ?? rows[0];
  const words = row ? messages.texts[row[1]] : "";
  const isElsewhere = row && row[0] !== view.partition;
  const about = isElsewhere ? ` ${partitionName(history.partitions[row[0]])}` : "";
  const more = rows.length > 1 && isElsewhere ? " …" : "";
  const general = rows.length ? "" : messages.texts[messages.words[index]];
  const error = row ? messages.texts[row[2]] || (isElsewhere ? errorOf(index) : "") : errorOf(index);
  const isRequest = messages.request[index] === ALL;
  if (!isRequest && apiOf(index).startsWith("store")) return errorOf(index) || "ok";
  const name = isRequest ? apiOf(index).replace("store ", "") : "";
  const text = error ? `${apiOf(index)}: ${error}` : [`${name}${about}`.trim(), words || general].filter(Boolean).join(" ");
  return `${isLost(index) ? "lost: " : ""}${text || (isRequest ? apiOf(index) : "ok")}${more}`;
}

/** The width of the gap beside the sender of a message, where its words have to be. Lanes of clients are no obstacle. */
function labelWidth(index, isRight) {
  const order = [...places.lanes.keys()];
  const source = places.lanes.get(messages.from[index]);
  let next = order.indexOf(messages.from[index]) + (isRight ? 1 : -1);
  while (next > 0 && parties[order[next]].role === "client" && order[next] !== messages.to[index]) next += isRight ? 1 : -1;
  const end = places.lanes.get(order[next]);
  return Math.min((isRight ? end.left - source.right : source.left - end.right) - 12, LABEL_WIDTH_MAX);
}

/** A text that is at most so wide. */
function cut(text, width) {
  let length = text.length;
  while (length > 3 && pen.measureText(text.slice(0, length)).width > width) length = Math.floor(length * 0.9);
  return length < text.length ? `${text.slice(0, length - 1)}…` : text;
}

function drawHeads({ left, from }, width, scale) {
  fit(heads, headPen, width, HEADS_HEIGHT);
  headPen.fillStyle = colours.ink;
  headPen.font = "11px system-ui, sans-serif";
  headPen.textAlign = "right";
  headPen.fillText("seconds", AXIS_WIDTH - 20, HEADS_HEIGHT - 8);
  headPen.beginPath();
  headPen.rect(AXIS_WIDTH - 14, 0, width, HEADS_HEIGHT);
  headPen.save();
  headPen.clip();
  headPen.translate(-left, 0);
  const now = history.controllers.findLast(([at]) => at <= from + 1);
  for (const [party, lane] of places.lanes) {
    const middle = (lane.left + lane.right) / 2;
    const { name, role } = parties[party];
    headPen.fillStyle = colours.ink;
    if (role !== "broker") {
      headPen.save();
      headPen.translate(middle + 4, HEADS_HEIGHT - 6);
      headPen.rotate(-Math.PI / 4);
      headPen.textAlign = "left";
      headPen.fillText(name, 0, 0);
      headPen.restore();
      continue;
    }
    headPen.textAlign = "center";
    headPen.font = "600 13px system-ui, sans-serif";
    headPen.fillText(name, middle, HEADS_HEIGHT - 40);
    headPen.font = "11px system-ui, sans-serif";
    headPen.fillStyle = colours.dim;
    if (now && now[1] === brokerIds.get(party)) headPen.fillText("controller", middle, HEADS_HEIGHT - 24);
    if (!scale) continue;
    headPen.textAlign = "left";
    headPen.fillText(String(scale.low), lane.left + 2, HEADS_HEIGHT - 6);
    headPen.textAlign = "right";
    headPen.fillText(String(scale.high), lane.right - 2, HEADS_HEIGHT - 6);
    headPen.textAlign = "center";
    headPen.fillText("offset", middle, HEADS_HEIGHT - 6);
  }
  headPen.restore();
}

// -- the rest of the page

const byId = (id) => document.getElementById(id);

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fillSelect(id, choices, value) {
  byId(id).replaceChildren(
    ...choices.map(([key, text]) => {
      const option = element("option", text);
      option.value = key;
      return option;
    }),
  );
  byId(id).value = value;
}

function fillPage() {
  const count = messages.lost.filter(Boolean).length;
  const length = `${(history.end / SECOND).toFixed(1)} s, ${messages.count} messages, ${count} of them lost`;
  byId("title").textContent = `Seed ${history.seed}, ${history.kind}: ${length}`;
  document.title = `Seed ${history.seed} (${history.kind})`;
  byId("replay").textContent = history.replay;
  const [first] = history.violations;
  byId("verdict").textContent = first
    ? `breaks ${first[1]} at ${seconds(first[0])} s${history.violations.length > 1 ? `, and ${history.violations.length - 1} more` : ""}`
    : "breaks no rule";
  byId("verdict").className = first ? "broken" : "";
  byId("next-violation").hidden = !first;

  const partitions = history.partitions
    .map((partition, index) => [index, partitionName(partition), partition[1], index in replicas])
    .filter(([, , number, isHosted]) => number >= 0 && isHosted);
  fillSelect("partition", [[ALL, "none"], ...partitions], view.partition);
  fillSelect("party", [[ALL, "all"], ...parties.map(({ name }, index) => [index, name])], ALL);
  const apis = messages.apis.map((api, index) => [index, api]).sort((one, other) => one[1].localeCompare(other[1]));
  fillSelect("api", [[ALL, "all"], ...apis], ALL);
  fillLegend();
  fillStory();
  for (const [at, rule, text, partition] of history.violations) {
    const mark = element("div", "", "violation");
    mark.append(element("span", `${rule} is broken: ${text}`));
    mark.dataset.at = at;
    mark.dataset.partition = partition;
    track.append(mark);
  }
}

const LEGEND = [
  ["leader", "leader"], ["follower", "follower in sync"], ["out-of-sync", "out of ISR"], ["down", "down"],
  ["log-end", "log end offset", "line"], ["high-watermark", "high watermark", "line"],
  ["uncommitted", "not committed"], ["produce", "produce", "line"], ["replicate", "replica fetch", "line"],
  ["consume", "consumer fetch", "line"], ["control", "control", "line"], ["group", "groups", "line"],
  ["store", "store", "line"], ["violation", "error or lost (✕)", "line"], ["fault", "fault", "hatch"],
];

function fillLegend() {
  for (const [colour, words, kind = ""] of LEGEND) {
    const entry = element("span");
    const sample = element("i", "", kind);
    if (kind !== "hatch") sample.style.background = `var(--${colour})`;
    entry.append(sample, words);
    byId("legend").append(entry);
  }
}

function fillStory() {
  const violated = new Set(history.violations.map(([, , , , line]) => line));
  history.story.forEach(([at, text], number) => {
    const kind = violated.has(number) ? "violation" : text.startsWith("fault: ") ? "fault" : "";
    const button = element("button", "", kind);
    button.type = "button";
    button.tabIndex = number ? -1 : 0;
    button.dataset.line = number;
    button.append(element("time", seconds(at)), text);
    const item = element("li");
    item.append(button);
    byId("story").append(item);
  });
}

const storyButtons = () => byId("story").querySelectorAll("button");

function markStory() {
  const buttons = storyButtons();
  buttons.forEach((button, number) => {
    const partition = history.story[number][2];
    button.classList.toggle("elsewhere", view.partition !== ALL && partition !== ALL && partition !== view.partition);
    button.classList.toggle("chosen", number === view.line);
    button.tabIndex = number === Math.max(view.line, 0) ? 0 : -1;
    if (number === view.line) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  });
  if (view.line === ALL) return;
  const list = byId("story");
  const button = buttons[view.line];
  const offset = button.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (offset < 0 || offset + button.offsetHeight > list.clientHeight) list.scrollTop += offset - list.clientHeight / 2;
}

const DETAIL_ROWS_MAX = 30;

function showDetails() {
  const index = view.message;
  const panel = byId("details");
  if (index === ALL) {
    panel.replaceChildren(element("p", "Click an arrow, or press ↓ in the diagram."));
    return;
  }
  const isRequest = messages.request[index] === ALL;
  const name = `${apiOf(index)}${apiOf(index).startsWith("store") ? "" : ` v${messages.version[index]}`}`;
  const size = messages.bytes[index] ? `, ${messages.bytes[index]} bytes` : "";
  const between_ = `${parties[messages.from[index]].name} → ${parties[messages.to[index]].name}`;
  const took = `${((messages.ended[index] - messages.began[index]) / 1000).toFixed(2)} ms`;
  panel.replaceChildren(
    element("p", `${between_}: ${name} ${isRequest ? "request" : "response"}${size}`),
    element("p", `${(messages.began[index] / SECOND).toFixed(6)} s, under way for ${took}`),
  );
  if (isLost(index)) panel.append(element("p", `lost: ${messages.losses[messages.lost[index]]}`, "broken"));
  if (errorOf(index)) panel.append(element("p", errorOf(index), "broken"));
  if (messages.texts[messages.words[index]]) panel.append(element("p", messages.texts[messages.words[index]]));

  const rows = messages.rowLists[messages.rows[index]];
  const list = element("ul");
  for (const [partition, words, error] of rows.slice(0, DETAIL_ROWS_MAX)) {
    const text = [partitionName(history.partitions[partition]), messages.texts[words], messages.texts[error]];
    list.append(element("li", text.filter(Boolean).join(": ")));
  }
  if (rows.length > DETAIL_ROWS_MAX) list.append(element("li", `and ${rows.length - DETAIL_ROWS_MAX} more`));
  panel.append(list);

  const other = isRequest ? messages.response[index] : messages.request[index];
  if (other === ALL) {
    if (isRequest && apiOf(index) !== "store watch") panel.append(element("p", "It has no response."));
    return;
  }
  const button = element("button", isRequest ? "its response" : "its request");
  button.type = "button";
  button.addEventListener("click", () => selectMessage(other, true));
  panel.append(button);
}

// -- changes

/** Everything is computed again; the given time stays where it was on the screen, or comes to the middle. */
function show(time = null) {
  const keptTime = time ?? timeAt(diagram.scrollTop + diagram.clientHeight / 2);
  places.chosen = choose();
  places.startY = new Float64Array(places.chosen.length);
  places.endY = new Float64Array(places.chosen.length);
  placeLanes(diagram.clientWidth);
  if (view.axis === "clock") placeByClock();
  else placeByMessages();
  segmentsOf = new Map(brokers.map((party) => [party, roleSegments(party)]));
  track.style.height = `${Math.max(places.height, diagram.clientHeight)}px`;
  track.style.width = `${places.width}px`;
  for (const mark of track.querySelectorAll(".violation")) {
    mark.style.top = `${yAt(Number(mark.dataset.at), true)}px`;
    mark.classList.toggle("elsewhere", !isHere(Number(mark.dataset.partition)));
  }
  byId("shown").textContent = `${places.chosen.length} of ${messages.count} messages`;
  scrollTo(keptTime);
  markStory();
  draw();
}

/** To the beginning of a moment, where its violations stand: its events may fill more than a screen. */
function scrollTo(time) {
  diagram.scrollTop = yAt(time, true) - diagram.clientHeight / 2;
  draw();
}

/** The moment must be among what is shown. */
function include(time) {
  if (Math.abs(time - view.moment) <= view.span) return;
  view.moment = time;
  byId("moment").value = seconds(time);
}

function choosePartition(partition) {
  view.partition = partition;
  byId("partition").value = partition;
}

function selectLine(line, { scrolls = true } = {}) {
  view.line = line;
  const [at, , partition] = history.story[line];
  if (scrolls) {
    view.message = ALL;
    if (partition !== ALL && partition in replicas) choosePartition(partition);
    include(at);
    byId("moment").value = seconds(at);
    showDetails();
    show(at);
  } else markStory();
}

/** The last line of the story before a message: of its partition, if there is one within the second before. */
function lineBefore(index) {
  const last = lastUpTo(history.story.map(([at]) => at), messages.began[index]);
  for (let line = last; line >= 0 && history.story[line][0] > messages.began[index] - SECOND; line--) {
    if (history.story[line][2] === view.partition) return line;
  }
  return Math.max(last, 0);
}

function selectMessage(index, scrolls = false) {
  view.message = index;
  showDetails();
  if (index === ALL) {
    draw();
    return;
  }
  if (history.story.length) selectLine(lineBefore(index), { scrolls: false });
  const place = lastUpTo(places.chosen, index);
  const isThere = places.chosen[place] === index;
  const y = isThere ? places.startY[place] : yAt(messages.began[index]);
  const isOutside = y < diagram.scrollTop + 20 || y > diagram.scrollTop + diagram.clientHeight - 40;
  if (scrolls && isOutside) diagram.scrollTop = y - diagram.clientHeight / 2;
  draw();
}

function nextViolation() {
  const { violations } = history;
  if (!violations.length) return;
  const lines = violations.map(([, , , , line]) => line);
  const next = lines.findIndex((line) => line > view.line);
  selectLine(lines[Math.max(next, 0)]);
}

function zoomBy(factor) {
  view.zoom = Math.min(Math.max(view.zoom * factor, 0.3), view.axis === "clock" ? 60 : 6);
  show();
}

/** The message whose arrow is at this place of the canvas; ALL if none is near. */
function messageAt(x, y) {
  const point = { x: x + diagram.scrollLeft, y: y + diagram.scrollTop };
  let best = ALL;
  let nearest = 7;
  for (let place = 0; place < places.chosen.length && places.startY[place] < point.y + 10; place++) {
    if (places.endY[place] < point.y - 10) continue;
    const { x0, y0, x1, y1 } = lineOf(place);
    const length = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
    const share = Math.min(Math.max(((point.x - x0) * (x1 - x0) + (point.y - y0) * (y1 - y0)) / length, 0), 1);
    const distance = Math.hypot(point.x - x0 - share * (x1 - x0), point.y - y0 - share * (y1 - y0));
    if (distance < nearest) [nearest, best] = [distance, places.chosen[place]];
  }
  return best;
}

function stepMessage(step) {
  const { chosen } = places;
  if (!chosen.length) return;
  const top = timeAt(diagram.scrollTop + 20);
  const here = view.message === ALL ? chosen.findIndex((index) => messages.began[index] >= top) : lastUpTo(chosen, view.message) + step;
  selectMessage(chosen[Math.min(Math.max(here, 0), chosen.length - 1)], true);
}

const DIAGRAM_KEYS = {
  ArrowDown: () => stepMessage(1),
  ArrowUp: () => stepMessage(-1),
  ArrowRight: () => view.message !== ALL && messages.response[view.message] !== ALL && selectMessage(messages.response[view.message], true),
  ArrowLeft: () => view.message !== ALL && messages.request[view.message] !== ALL && selectMessage(messages.request[view.message], true),
  Enter: () => storyButtons()[Math.max(view.line, 0)]?.focus(),
  Escape: () => selectMessage(ALL),
  "+": () => zoomBy(1.4),
  "-": () => zoomBy(1 / 1.4),
  v: nextViolation,
};

function listen() {
  const numeric = (id, name) => byId(id).addEventListener("change", () => {
    view[name] = Number(byId(id).value);
    show();
  });
  numeric("partition", "partition");
  numeric("party", "party");
  numeric("api", "api");
  for (const [id, name] of [["only-partition", "onlyPartition"], ["only-trouble", "onlyTrouble"]]) {
    byId(id).addEventListener("change", () => {
      view[name] = byId(id).checked;
      show();
    });
  }
  for (const id of ["moment", "span"]) {
    byId(id).addEventListener("change", () => {
      view.moment = Number(byId("moment").value) * SECOND;
      view.span = byId("span").value === "" ? Infinity : Number(byId("span").value) * SECOND;
      show(view.moment);
    });
  }
  byId("axis").addEventListener("change", () => {
    view.axis = byId("axis").value;
    view.zoom = 1;
    show();
  });
  byId("closer").addEventListener("click", () => zoomBy(1.4));
  byId("wider").addEventListener("click", () => zoomBy(1 / 1.4));
  byId("next-violation").addEventListener("click", nextViolation);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());

  diagram.addEventListener("scroll", draw);
  diagram.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    selectMessage(messageAt(event.clientX - box.left, event.clientY - box.top));
  });
  diagram.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const isNear = messageAt(event.clientX - box.left, event.clientY - box.top) !== ALL;
    diagram.style.cursor = isNear ? "pointer" : "";
  });
  diagram.addEventListener("keydown", (event) => {
    const act = DIAGRAM_KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  byId("story").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) selectLine(Number(button.dataset.line));
  });
  byId("story").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const button = event.target.closest("button");
    if (!step || !button) return;
    event.preventDefault();
    const next = storyButtons()[Number(button.dataset.line) + step];
    next?.focus();
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    draw();
  });
  let width = diagram.clientWidth;
  new ResizeObserver(() => {
    if (diagram.clientWidth === width) return draw();
    width = diagram.clientWidth;
    return show();
  }).observe(diagram);
}

/** Where to begin: at the first violation, or where the partition with the most messages gets its first leader. */
function begin() {
  const [violation] = history.violations;
  const counts = new Map();
  messages.rows.forEach((rows) => {
    for (const [partition] of messages.rowLists[rows]) counts.set(partition, (counts.get(partition) ?? 0) + 1);
  });
  const hosted = Object.keys(replicas).map(Number).filter((partition) => !history.partitions[partition][0].startsWith("__"));
  const busiest = hosted.sort((one, other) => (counts.get(other) ?? 0) - (counts.get(one) ?? 0))[0] ?? ALL;
  const named = violation && violation[3] in replicas ? violation[3] : busiest;
  choosePartition(named);
  const line = violation
    ? violation[4]
    : history.story.findIndex(([, text, partition]) => partition === named && text.includes(" leads "));
  if (line >= 0) selectLine(line);
  else show(0);
}

readColours();
fillPage();
listen();
showDetails();
begin();
drawNow();
document.documentElement.dataset.ready = String(Math.round(performance.now()));

// For tests, and for a reader at the console.
window.diagram = { history, view, places, lineOf, drawNow };
