#!/usr/bin/env python3
"""claude_code_client.py URL MODEL FOLDER: the real Claude Code, of the wheel claude-agent-sdk, against a service with the scripted model.

Its traffic other than to the service is off, by its own variables; its folder is FOLDER."""
import asyncio
import importlib.metadata
import pathlib
import shutil
import subprocess
import sys

import claude_agent_sdk
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, TextBlock, ToolResultBlock, ToolUseBlock, UserMessage, query
from rounds import ASK, CALL, HELLO, SEEN, run, same

URL, MODEL, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
PROGRAM = pathlib.Path(claude_agent_sdk.__file__).with_name("_bundled") / "claude"
shutil.rmtree(FOLDER, ignore_errors=True)
(FOLDER / "work").mkdir(parents=True)
ENVIRONMENT = {"HOME": str(FOLDER), "ANTHROPIC_BASE_URL": URL, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": MODEL,
               "ANTHROPIC_SMALL_FAST_MODEL": MODEL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1",
               "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1"}


def options(**more):
    return ClaudeAgentOptions(cwd=FOLDER / "work", env=ENVIRONMENT, model=MODEL, cli_path=PROGRAM, allowed_tools=["Bash"], **more)


def said(messages):
    """The last text, after the turn ended well."""
    [result] = [message for message in messages if isinstance(message, ResultMessage)]
    assert not result.is_error and result.usage["output_tokens"] > 0, result
    return [block.text for message in messages if isinstance(message, AssistantMessage) for block in message.content if isinstance(block, TextBlock)][-1]


async def asked(prompt, **more):
    return [message async for message in query(prompt=prompt, options=options(**more))]


def blocks(messages, source, kind):
    return [block for message in messages if isinstance(message, source) and isinstance(message.content, list)
            for block in message.content if isinstance(block, kind)]


def text():
    same(said(asyncio.run(asked(ASK))), HELLO)


def tool_round():
    messages = asyncio.run(asked(CALL))
    [call] = blocks(messages, AssistantMessage, ToolUseBlock)
    [result] = blocks(messages, UserMessage, ToolResultBlock)
    assert call.name == "Bash" and result.tool_use_id == call.id and "21" in str(result.content), (call, result)
    same(said(messages), SEEN)


def partial_messages():
    messages = asyncio.run(asked(ASK, include_partial_messages=True))
    same(said(messages), HELLO)
    kinds = {message.event["type"] for message in messages if hasattr(message, "event")}
    assert {"message_start", "content_block_delta", "message_stop"} <= kinds, kinds


def conversation():
    """Several turns of one session: a call, and then a text."""
    async def talk():
        async with ClaudeSDKClient(options()) as client:
            found = []
            for prompt in (CALL, ASK):
                await client.query(prompt)
                found.append(said([message async for message in client.receive_response()]))
            return found

    first, second = asyncio.run(talk())
    same(first, SEEN)
    same(second, HELLO)


version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
run(f"Claude Code {version}, claude-agent-sdk {importlib.metadata.version('claude-agent-sdk')}", [text, tool_round, partial_messages, conversation])
