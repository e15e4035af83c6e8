"""Connects the reference gateway's own transport to a connector and says back what it hears, once.

Usage: reference_gateway.py PLATFORM, with GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET set.
"""

import asyncio
import os
import sys

from gateway.relay.ws_transport import WebSocketRelayTransport


async def main(platform: str) -> None:
    transport = WebSocketRelayTransport(
        os.environ["GATEWAY_RELAY_URL"],
        platform,
        "reference-bot",
        gateway_id=os.environ["GATEWAY_RELAY_ID"],
        upgrade_secret=os.environ["GATEWAY_RELAY_SECRET"],
    )
    heard = asyncio.get_running_loop().create_future()

    async def hear(event) -> None:
        if not heard.done():
            heard.set_result(event)

    transport.set_inbound_handler(hear)
    if not await transport.connect():
        sys.exit("the transport did not connect")
    descriptor = await transport.handshake()
    print(f"descriptor {descriptor.platform} {descriptor.max_message_length}", flush=True)
    event = await asyncio.wait_for(heard, 30)
    result = await transport.send_outbound(
        {
            "op": "send",
            "chat_id": event.source.chat_id,
            "content": f"reference: {event.text}",
            "reply_to": event.message_id,
            "metadata": {},
        }
    )
    print(f"result {result.get('success')} {result.get('message_id')}", flush=True)
    await transport.disconnect()


asyncio.run(main(sys.argv[1]))
