// What another program adds to the page before it is drawn: views as {key, title, view}, and parts below the head.

export const extras = { views: [], bars: [] };
