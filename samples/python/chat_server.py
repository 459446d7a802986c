#!/usr/bin/env python3
"""The core of a chat server for many users, without sockets: a task for each user; the twin of samples/c/chat_server.c.

    chat_server.py [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]     e.g.  chat_server.py chat.gguf 200 cpu:4 0.7
"""
import asyncio
import sys

import tessera


class User:
    def __init__(self, name, engine, options, streams):
        self.name, self.engine, self.options, self.streams = name, engine, options, streams
        self.messages, self.lines, self.request = [], asyncio.Queue(), None
        self.task = asyncio.create_task(self.talk())

    def say(self, text):
        print(f"{self.name}: {''.join(' ' if c < ' ' else c for c in text)}", flush=True)

    async def talk(self):
        while (line := await self.lines.get()) is not None:
            try:
                await self.answer(line)
            except tessera.TesseraError as error:  # this user's matter alone
                self.say(str(error))

    async def answer(self, line):
        asked = [*self.messages, {"role": "user", "content": line}]
        self.request = self.engine.submit(messages=asked, **self.options)
        text = ""
        async for event in self.request:
            text += event.text
            if self.streams and event.text:
                self.say(event.text)
        self.messages = [*asked, {"role": "assistant", "content": text}]
        if not self.streams:
            self.say(text)

    def take(self, line):
        if line != "/stop":
            self.lines.put_nowait(line)
            return
        while not self.lines.empty():
            self.lines.get_nowait()
        if self.request is not None:
            self.request.cancel()


async def serve(engine, options, streams):
    users = {}
    while data := await asyncio.to_thread(sys.stdin.buffer.readline):
        name, _, line = data.decode(errors="surrogateescape").strip().partition(" ")
        if name:
            if name not in users:
                users[name] = User(name, engine, options, streams)
            users[name].take(line)
    for user in users.values():  # what is in progress is completed
        user.lines.put_nowait(None)
        await user.task


def main(argv):
    streams = argv[1:2] == ["--stream"]
    given = argv[1 + streams:]
    if not given:
        print(f"usage: {argv[0]} [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]", file=sys.stderr)
        return 2
    model, tokens, devices, temperature, template = given + [None, 200, "cpu:1", 0, None][len(given):]
    try:
        with tessera.Engine(tessera.load(model), max_tokens=int(tokens), devices=devices,
                            temperature=float(temperature)) as engine:
            asyncio.run(serve(engine, {"template": template}, streams))
    except tessera.TesseraError as error:
        print(f"{error.code_name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
