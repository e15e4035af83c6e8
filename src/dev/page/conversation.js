// The messages of every chat, built from what happens. Holds no nodes; views read it and are notified of changes.
//
// A connector reports what was done, and the messages are made here; a fake platform reports how a chat looks now.

const MAX_MESSAGES = 1000;
const MAX_CHATS = 200;

export const conversation = { can: [], chats: [], people: [], hints: [], more: [], commands: [], current: null };

const watchers = [];
const sessions = new Map();
const buffers = new Map();
const messages = new Map();

/** Calls `see(chat, message)` after a change; the message is missing when the chat itself changed. */
export function watch(see) {
  watchers.push(see);
}

function changed(chat, message) {
  for (const see of watchers) see(chat, message);
}

export function setUp({ chats = [], ...setup }) {
  Object.assign(conversation, setup);
  for (const chat of chats) addChat(chat);
  conversation.current ??= conversation.chats[0] ?? null;
  changed(null);
}

/** Whether what stands behind the page does this. */
export const can = (what) => conversation.can.includes(what);

export function name(userId) {
  return conversation.people.find((person) => person.id === userId)?.name ?? userId ?? "someone";
}

const keyOf = (chat, thread) => `${chat}\n${thread ?? ""}`;

function addChat({ chat, thread, ...about }) {
  const key = keyOf(chat, thread);
  const known = conversation.chats.find((other) => other.key === key);
  if (known) return Object.assign(known, about);
  if (conversation.chats.length >= MAX_CHATS) return conversation.chats[0];
  const added = {
    key, chat, thread: thread ?? null, messages: [], drafts: new Map(), cards: new Map(), typing: null, unread: 0, ...about,
  };
  // A topic comes after its chat.
  const before = conversation.chats.findLastIndex((other) => other.chat === chat);
  conversation.chats.splice(before < 0 ? conversation.chats.length : before + 1, 0, added);
  return added;
}

/** A chat as it is now: messages that differ are drawn again. */
function look({ messages: shown, drafts, action, ...about }) {
  const chat = addChat(about);
  conversation.current ??= chat;
  const ids = new Set(shown.map((message) => message.id));
  for (const message of chat.messages.filter(({ id }) => !ids.has(id))) forget(chat, message);
  for (const message of shown) {
    const known = find(chat, message.id);
    const json = JSON.stringify(message);
    if (!known) add(chat, { ...message, json });
    else if (known.json !== json) changed(chat, Object.assign(known, message, { json }));
  }
  chat.drafts = new Map(drafts.map((draft) => [draft.id, draft]));
  chat.typing = action && { status: action === "typing" ? null : `is busy: ${action}`, at: performance.now(), passes: true };
  changed(null);
}

/** The chat that something belongs to; one that nobody opened here appears by itself. */
function place(chat, thread, title, kind) {
  const exact = conversation.chats.find((known) => known.key === keyOf(chat, thread));
  if (exact) return exact;
  // An answer without its thread still belongs to the chat, and so does one in the thread of a message there.
  const same = conversation.chats.filter((known) => known.chat === chat);
  if (same.length > 0 && !thread) return same[0];
  const under = same.find((known) => find(known, thread));
  if (under) return under;
  return addChat({ kind: kind ?? "dm", name: title ?? chat, chat, thread });
}

function add(chat, message) {
  chat.messages.push(message);
  if (message.id) messages.set(`${chat.key}\n${message.id}`, message);
  if (chat.messages.length > MAX_MESSAGES) forget(chat, chat.messages[0]);
  if (chat !== conversation.current && message.from !== "note") chat.unread += 1;
  changed(chat, message);
  if (chat.unread > 0) changed(chat);
}

function forget(chat, message) {
  chat.messages.splice(chat.messages.indexOf(message), 1);
  messages.delete(`${chat.key}\n${message.id}`);
  changed(chat, { ...message, forgotten: true });
}

export function find(chat, id) {
  return messages.get(`${chat.key}\n${id}`);
}

let counted = 0;
const local = () => `local-${(counted += 1)}`;

/** A line of the page's own in a chat. */
export function note(chat, text, t) {
  add(chat, { id: local(), from: "note", text, t: t ?? null, reactions: [] });
}

const KINDS = { dm: "dm", thread: "thread", forum: "topic" };

function inbound({ event, buffer, session, t }) {
  const source = event.source ?? {};
  const kind = KINDS[source.chat_type] ?? "group";
  const chat = place(source.chat_id, source.thread_id, source.chat_name, kind);
  if (session) sessions.set(session, chat);
  const who = source.user_name ?? name(source.user_id);
  if (event.prompt_response) {
    const { prompt_id: prompt, option_id: option, label } = event.prompt_response;
    pressed(chat, prompt, option, label, who, t);
    return;
  }
  const known = event.message_id && find(chat, event.message_id);
  if (known) {
    known.copies = (known.copies ?? 1) + 1;
    if (buffer) buffers.set(buffer, { chat, message: known });
    changed(chat, known);
    return;
  }
  const message = {
    id: event.message_id ?? local(),
    from: "person", who, user: source.user_id, session,
    text: event.text ?? "", t,
    replyTo: event.reply_to_message_id ?? null,
    media: (event.media ?? []).map((one) => ({ url: one.url, kind: one.kind, name: one.filename, mime: one.mime })),
    reactions: [], state: buffer ? "waiting" : "sent",
  };
  if (buffer) buffers.set(buffer, { chat, message });
  add(chat, message);
}

function forwarded({ body, buffer, session, t }) {
  const thread = body.channel?.parent_id ? body.channel_id : null;
  const chat = place(body.channel_id, thread);
  if (session) sessions.set(session, chat);
  const user = body.member?.user ?? body.user ?? {};
  const token = /^hp1:([^:]+):([^:]+)$/.exec(body.data?.custom_id ?? "");
  if (token) {
    pressed(chat, token[1], token[2], null, user.username, t);
    return;
  }
  const options = (body.data?.options ?? []).map((option) => option.value).join(" ");
  const message = {
    id: body.id, from: "person", who: user.username ?? "someone", user: user.id, session, t,
    text: `/${body.data?.name ?? ""} ${options}`.trim(), tags: ["interaction"],
    media: [], reactions: [], state: "waiting",
  };
  if (buffer) buffers.set(buffer, { chat, message });
  add(chat, message);
}

// Reactions on a message while its turn runs, and when it has ended by itself.
const RUNNING = "👀";
const ENDS = ["✅", "❌", "👍", "👎"];

const unanswered = (message) => message.from === "person" && !message.settled && !message.text.startsWith("/");

/** A message is answered: the one that is named, else the first that waits. */
function settle(chat, id) {
  const message = id ? find(chat, id) : chat.messages.find(unanswered);
  if (message?.from === "person") message.settled = true;
}

/** Somebody stopped a session: the message whose turn runs says so from now on. */
function stop({ session }) {
  const chat = sessions.get(session);
  if (!chat) return;
  const own = chat.messages.filter((message) => message.session === session);
  const message = own.find((one) => one.reactions.includes(RUNNING)) ?? own.find(unanswered);
  if (!message) return;
  message.stopped = true;
  message.settled = true;
  changed(chat, message);
  for (const answer of chat.messages) {
    if (answer.replyTo === message.id) changed(chat, answer);
  }
}

/** Whether a message was stopped, or is what there was of an answer then. */
export function isStopped(chat, message) {
  const asked = message.from === "bot" && !message.prompt ? find(chat, message.replyTo) : message;
  return Boolean(asked?.stopped);
}

function pressed(chat, prompt, option, label, who, t) {
  const asked = chat.messages.findLast((message) => message.prompt?.id === prompt);
  if (asked) {
    asked.prompt.pressed = option;
    asked.prompt.by = who;
    changed(chat, asked);
  }
  const said = label ?? asked?.prompt.rows.flat().find((one) => one.id === option)?.label ?? option;
  note(chat, `${who} chose “${said}”`, t);
}

function post(chat, action, result, t) {
  const metadata = action.metadata ?? {};
  chat.typing = null;
  const message = {
    id: result.message_id ?? local(), from: "bot", text: action.content ?? "", t, tags: ["agent"],
    replyTo: action.reply_to ?? metadata.reply_to_message_id ?? null,
    // Progress has no message that it answers, and says so by not wanting to ring.
    quiet: metadata.notify === false,
    media: [], reactions: [], edits: 0,
  };
  // A message that is to grow, and a question, are no answer yet.
  const isProgress = message.quiet && !message.replyTo;
  if (metadata.expect_edits !== true && action.op !== "prompt" && !isProgress) settle(chat, message.replyTo);
  if (action.op === "send_media") {
    message.media = [{ url: action.source_url, kind: action.media_kind, name: action.filename }];
  }
  if (action.op === "prompt") {
    message.prompt = { id: action.prompt_id, rows: [action.options], pressed: null };
  }
  add(chat, message);
}

const ops = {
  send(chat, action, result, t) {
    // A preview is gone when its message comes.
    if (conversation.platform === "telegram") {
      chat.drafts.clear();
      changed(chat, null);
    }
    post(chat, action, result, t);
  },
  send_media: post,
  prompt: post,
  follow_up: post,
  edit(chat, action) {
    const message = find(chat, action.message_id);
    if (!message) return;
    message.text = action.content;
    message.edits = (message.edits ?? 0) + 1;
    // Only the last text says whether it rings.
    if (typeof action.metadata?.notify === "boolean") settle(chat, message.replyTo);
    changed(chat, message);
  },
  delete(chat, action) {
    const message = find(chat, action.message_id);
    if (!message) return;
    message.deleted = true;
    changed(chat, message);
  },
  draft(chat, action, result, t) {
    if (action.final) {
      chat.drafts.delete(action.draft_id);
      post(chat, action, result, t);
    } else {
      chat.typing = null;
      chat.drafts.set(action.draft_id, { text: action.content });
    }
    changed(chat, null);
  },
  typing(chat, action) {
    chat.typing = action.content === "" ? null : { status: action.content ?? null, at: performance.now() };
    changed(chat, null);
  },
  react(chat, action) {
    const message = find(chat, action.message_id);
    if (!message) return;
    message.reactions = message.reactions.filter((emoji) => emoji !== action.emoji);
    if (!action.remove) message.reactions.push(action.emoji);
    if (action.remove && action.emoji === RUNNING) message.settled = true;
    if (!action.remove && ENDS.includes(action.emoji)) {
      // It ended by itself after all.
      message.settled = true;
      message.stopped = false;
    }
    changed(chat, message);
  },
  task_card(chat, action) {
    chat.cards.set(action.card_id, { chunks: action.chunks, done: false });
    changed(chat, null);
  },
  task_card_stop(chat, action) {
    const card = chat.cards.get(action.card_id);
    if (card) card.done = true;
    changed(chat, null);
  },
  thread_create(chat, action, result, t) {
    const thread = result.thread_id;
    addChat({ kind: "thread", name: action.thread_name, chat: conversation.platform === "discord" ? thread : chat.chat, thread });
    note(chat, `A thread was opened: ${action.thread_name}`, t);
    changed(null);
  },
  thread_rename(chat, action) {
    const thread = conversation.chats.find((known) => known.thread === action.message_id);
    if (thread) thread.name = action.thread_name;
    changed(null);
  },
  get_chat_info() {},
};

function op({ action, result, t }) {
  const chat = action.op === "follow_up"
    ? sessions.get(action.session_key)
    : place(action.chat_id, action.metadata?.thread_id);
  if (!chat) return;
  if (!result.success) {
    note(chat, `${action.op} was refused: ${result.error ?? "no reason given"}`, t);
    return;
  }
  ops[action.op]?.(chat, action, result, t);
}

/** Takes one thing that happened. */
export function happen(what) {
  if (what.k === "in") inbound(what);
  else if (what.k === "forward") forwarded(what);
  else if (what.k === "op") op(what);
  else if (what.k === "stop") stop(what);
  else if (what.k === "chat") look(what.chat);
  else if (what.k === "ack") {
    const waiting = buffers.get(what.buffer);
    buffers.delete(what.buffer);
    if (waiting) {
      waiting.message.state = "taken";
      changed(waiting.chat, waiting.message);
    }
  }
}

/** Makes a chat the one that is looked at. */
export function choose(chat) {
  conversation.current = chat;
  chat.unread = 0;
  changed(null);
}
