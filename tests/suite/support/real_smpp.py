"""An SMSC by smpp34 that takes every message and, a moment later, reports that it was delivered.

Its answers write the id in hexadecimal, its receipts in decimal. Argument: the port. Prints a line of JSON for what happens;
ends when its input ends.
"""

import asyncio
import json
import sys

import smpp34


def say(**what):
    print(json.dumps(what), flush=True)


async def report(esme, event, number):
    text = (
        f"id:{number:010} sub:001 dlvrd:001 submit date:2611300200 done date:2611300201 stat:DELIVRD err:000 text:"
    )
    answer = await esme.deliver_sm(
        event.source_addr,
        text.encode() + event.short_message[:20],
        source_addr=event.destination_addr,
        source_addr_ton=1,
        source_addr_npi=1,
        esm_class=0x04,
    )
    say(receipt=number, taken=answer.is_success)


async def serve(port):
    server = smpp34.Server("127.0.0.1", port, system_id="real")
    await server.start()
    say(listening=port)
    sessions, tasks, number = {}, set(), 3_000_000_000
    while True:
        event = await server.next()
        if isinstance(event, smpp34.Esme):
            sessions[event.session_id] = event
            say(bound=event.system_id)
        elif isinstance(event, smpp34.Unbound):
            sessions.pop(event.session_id, None)
            say(unbound=True)
        else:
            number += 1
            payload = [tlv.value for tlv in event.tlvs if tlv.tag == smpp34.TLV_MESSAGE_PAYLOAD]
            say(
                source=[event.source_addr_ton, event.source_addr_npi, event.source_addr],
                destination=[event.dest_addr_ton, event.dest_addr_npi, event.destination_addr],
                registered=event.registered_delivery,
                coding=event.data_coding,
                message=event.short_message.hex(),
                payload=payload[0].hex() if payload else None,
            )
            event.accept(f"{number:X}")
            task = asyncio.create_task(report(sessions[event.session_id], event, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def main():
    serving = asyncio.create_task(serve(int(sys.argv[1])))
    reading = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait([serving, asyncio.ensure_future(reading)], return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()


asyncio.run(main())
