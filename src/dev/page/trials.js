// The faults, the expected steps, and how each step is recognised in the events.
//
// A step is a sentence and a test of the events since the click. A step with `still` must hold that many
// milliseconds after the others did, because "only once" is never seen, only not contradicted.

const SETTLE = 1500;

const links = (seen, what) => seen.happenings.filter((one) => one.k === "link" && one.what === what);
const closed = (seen) => links(seen, "close")[0];
const greeted = (seen) => {
  const end = closed(seen);
  return Boolean(end) && links(seen, "hello").some((one) => one.t > end.t);
};

const replyOps = new Set(["send", "draft", "send_media", "follow_up", "prompt"]);

/** The answers to a message that were shown to people. */
export function answers(seen, id) {
  return seen.happenings.filter((one) => {
    if (one.k !== "op" || !one.result.success || !replyOps.has(one.action.op)) return false;
    if (one.action.op === "draft" && !one.action.final) return false;
    return (one.action.reply_to ?? one.action.metadata?.reply_to_message_id) === id;
  });
}

const refusals = (seen) => seen.happenings.filter((one) => one.k === "op" && !one.result.success);
const acked = (seen, buffer) => seen.happenings.some((one) => one.k === "ack" && one.buffer === buffer);
const sent = (seen, id) => seen.happenings.find((one) => one.k === "in" && one.event.message_id === id);
const buffersOf = (seen, id) => seen.happenings.filter((one) => one.k === "in" && one.event.message_id === id).map((one) => one.buffer);
const taken = (seen, id) => buffersOf(seen, id).length > 0 && buffersOf(seen, id).every((buffer) => acked(seen, buffer));
const answered = (seen, id) => answers(seen, id).length > 0;
const once = (seen, id) => answers(seen, id).length === 1;

const steps = {
  lost: { text: "the socket closes", test: (seen) => Boolean(closed(seen)) },
  back: { text: "the relay reconnects and sends a hello", test: greeted },
};
const probeAnswered = (text) => ({ text, test: (seen, made) => answered(seen, made.ids[0]) });

export const trials = [
  {
    id: "drop", title: "Drop the socket", button: "Drop",
    does: "Resets the connection and sends a message while it is down.",
    run: async (act) => {
      await act.fault("drop");
      return { ids: [await act.say("sent while the socket was down")] };
    },
    steps: [steps.lost, steps.back, probeAnswered("the message is answered")],
  },
  {
    id: "refuse_dials", title: "Refuse dials", button: "Refuse two",
    does: "Drops the socket and answers the next two dials with 503.",
    run: async (act) => {
      await act.fault("refuse_dials");
      return { ids: [] };
    },
    steps: [
      { text: "two dials are refused", test: (seen) => links(seen, "dial").filter((one) => one.status === 503).length >= 2 },
      { text: "the relay backs off, reconnects and sends a hello", test: greeted },
    ],
  },
  {
    id: "expire", title: "Expire the token", button: "Expire",
    does: "Closes the socket with 4401 expired.",
    run: async (act) => {
      await act.fault("expire");
      return { ids: [] };
    },
    steps: [
      { text: "the socket is closed with 4401", test: (seen) => closed(seen)?.code === 4401 },
      { text: "the relay reconnects with a new token: expired is not revoked", test: greeted },
    ],
  },
  {
    id: "revoke", title: "Revoke the gateway", button: "Revoke", undo: { fault: "reinstate", button: "Reinstate" },
    does: "Closes the socket with 4401 and refuses every token until you reinstate the gateway.",
    run: async (act) => {
      await act.fault("revoke");
      return { ids: [] };
    },
    steps: [
      { text: "the socket is closed with 4401", test: (seen) => closed(seen)?.code === 4401 },
      { text: "one more attempt with a new token is refused", test: (seen) => links(seen, "close").filter((one) => one.code === 4401).length >= 2 },
      { text: "the relay stops instead of retrying forever", test: (seen) => links(seen, "dial").length <= 2, still: 2000 },
    ],
  },
  {
    id: "delay_result", title: "Delay a result", button: "Delay",
    does: "Sends a message and delays the result of the reply by two seconds.",
    run: async (act) => {
      await act.fault("delay_result");
      return { ids: [await act.say("the result of this reply is late")] };
    },
    steps: [
      probeAnswered("the reply is shown"),
      { text: "its result follows about two seconds later", test: late },
      { text: "it is not sent twice", test: (seen, made) => once(seen, made.ids[0]), still: SETTLE },
    ],
  },
  {
    id: "refuse_result", title: "Refuse an op", button: "Refuse",
    does: "Sends a message and refuses the reply as a platform would, then sends another message.",
    run: async (act) => {
      await act.fault("refuse_result");
      return { ids: [await act.say("this reply is refused"), await act.say("and this one is not")] };
    },
    steps: [
      { text: "one send is refused", test: (seen) => refusals(seen).length >= 1 },
      { text: "the next message is answered as usual", test: (seen, made) => made.ids.some((id) => answered(seen, id)) },
    ],
  },
  {
    id: "hold", title: "Flip to buffered", button: "Buffer three",
    does: "Buffers deliveries, sends three messages, then drops the socket: the backlog drains after the reconnect.",
    run: async (act) => {
      await act.fault("hold");
      const ids = [];
      for (const word of ["one", "two", "three"]) ids.push(await act.say(`buffered ${word}`));
      await act.fault("drop");
      return { ids };
    },
    steps: [
      steps.back,
      { text: "all three are acknowledged", test: (seen, made) => made.ids.every((id) => taken(seen, id)) },
      { text: "they are answered in order", test: ordered },
    ],
  },
  {
    id: "poison", title: "Send poison frames", button: "Poison",
    does: "Sends half a frame, an array, an unknown type and an invalid event, then a message.",
    run: async (act) => {
      await act.fault("poison");
      return { ids: [await act.say("after the poison")] };
    },
    steps: [
      probeAnswered("the next message is answered"),
      { text: "on the same socket", test: (seen) => !closed(seen), still: SETTLE },
    ],
  },
  {
    id: "duplicate", title: "Deliver twice", button: "Deliver twice",
    does: "Delivers one message under two buffer ids.",
    run: async (act) => ({ ids: [await act.say("delivered twice", { twice: true })] }),
    steps: [
      { text: "both deliveries are acknowledged", test: (seen, made) => buffersOf(seen, made.ids[0]).length === 2 && taken(seen, made.ids[0]) },
      { text: "the message is answered once", test: (seen, made) => once(seen, made.ids[0]), still: SETTLE },
    ],
  },
];

function late(seen, made) {
  const began = sent(seen, made.ids[0])?.t ?? 0;
  const asked = new Map();
  for (const row of seen.rows) {
    if (row.t < began || !row.pair?.startsWith("request ")) continue;
    if (row.asks) asked.set(row.pair, row.t);
    else if (asked.has(row.pair) && row.t - asked.get(row.pair) > 1_900_000) return true;
  }
  return false;
}

function ordered(seen, made) {
  const times = made.ids.map((id) => answers(seen, id)[0]?.t ?? NaN);
  return times.every((time, index) => index === 0 ? !Number.isNaN(time) : time > times[index - 1]);
}
