//! The rdkafka crate over TLS and SASL: the program of `../../access.py`.

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::ClientContext;
use serde_json::{json, Value};

const LONGEST: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(100);
const HOUR_MS: i64 = 3_600_000;
// With TLS 1.3 a broker refuses the lack of a certificate when the client has ended its handshake.
const ALERT: &str = "alert certificate required";

/// Gives the token of the settings, and keeps what failed.
#[derive(Clone)]
struct Context {
    token: String,
    username: String,
    errors: Arc<Mutex<Vec<(KafkaError, String)>>>,
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        Ok(OAuthToken {
            token: self.token.clone(),
            principal_name: self.username.clone(),
            lifetime_ms: now_ms + HOUR_MS,
        })
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.errors.lock().unwrap().push((error, reason.to_string()));
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result {
            self.errors.lock().unwrap().push((error.clone(), String::new()));
        }
    }
}

fn text<'a>(access: &'a Value, name: &str) -> &'a str {
    access[name].as_str().unwrap()
}

fn context(access: &Value) -> Context {
    Context {
        token: text(access, "token").to_string(),
        username: text(access, "username").to_string(),
        errors: Arc::default(),
    }
}

fn settings(access: &Value) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", text(access, "bootstrap"))
        .set("security.protocol", text(access, "protocol"))
        .set("broker.address.family", "v4")
        .set("message.timeout.ms", "30000");
    let mechanism = text(access, "mechanism");
    let optional = [
        ("sasl.mechanism", mechanism),
        ("ssl.ca.location", text(access, "authority")),
        ("ssl.certificate.location", text(access, "certificate")),
        ("ssl.key.location", text(access, "key")),
    ];
    for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_empty()) {
        settings.set(name, value);
    }
    if !mechanism.is_empty() && mechanism != "OAUTHBEARER" {
        settings
            .set("sasl.username", text(access, "username"))
            .set("sasl.password", text(access, "password"));
    }
    settings
}

fn producer(access: &Value, context: Context) -> Result<BaseProducer<Context>, KafkaError> {
    settings(access).create_with_context(context)
}

fn once(access: &Value) -> Result<Value, Box<dyn Error>> {
    let records = access["records"].as_u64().unwrap() as usize;
    let context = context(access);
    let writer = producer(access, context.clone())?;
    for number in 0..records {
        let value = number.to_string();
        let record = BaseRecord::<(), str>::to(text(access, "topic")).payload(&value);
        writer.send(record).map_err(|(error, _)| error)?;
        writer.poll(Duration::ZERO);
    }
    writer.flush(LONGEST)?;
    if let Some((error, _)) = context.errors.lock().unwrap().first() {
        return Err(error.clone().into());
    }
    let reader: BaseConsumer<Context> = settings(access)
        .set("group.id", text(access, "group"))
        .set("auto.offset.reset", "earliest")
        .create_with_context(context)?;
    reader.subscribe(&[text(access, "topic")])?;
    let (mut read, began) = (HashSet::new(), Instant::now());
    while read.len() < records && began.elapsed() < LONGEST {
        if let Some(message) = reader.poll(POLL) {
            read.insert(message?.payload().unwrap().to_vec());
        }
    }
    reader.commit_consumer_state(CommitMode::Sync)?;
    Ok(json!({"read": read.len()}))
}

fn refused(access: &Value) -> Result<Value, Box<dyn Error>> {
    let context = context(access);
    let writer = producer(access, context.clone())?;
    let began = Instant::now();
    while began.elapsed() < REFUSED {
        writer.poll(POLL);
        for (error, reason) in context.errors.lock().unwrap().iter() {
            let code = error.rdkafka_error_code();
            let is_refusal = matches!(code, Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL));
            if is_refusal || reason.contains(ALERT) {
                return Ok(json!({"refused": reason}));
            }
        }
    }
    Err("not refused".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("which settings?")?;
    let access: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let done = match text(&access, "mode") {
        "once" => once(&access)?,
        "refused" => refused(&access)?,
        mode => return Err(format!("no mode {mode}").into()),
    };
    println!("{done}");
    Ok(())
}
