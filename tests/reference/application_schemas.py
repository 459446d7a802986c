#!/usr/bin/env python3
"""application_schemas.py CONSTRAINED_TEXT [--verbose]: constrained output under the schemas that applications write.

Takes the schemas of Pydantic models, of tools of public MCP servers, and schemas as zod's toJSONSchema writes them. Each is obeyed,
or refused because it holds look-around or unique items of a type without end. Of each that is obeyed, 8 texts of random tokens are
valid for Python's jsonschema (formats checked) and, of models, for pydantic; and every schema of an anyOf or oneOf is met by some
text. Prints a line a schema that fails and the counts; exits with 1 where fewer than 57 of 60 models, 28 of 30 tools or all of zod's
are obeyed, or a text is invalid.

CONSTRAINED_TEXT is the target constrained_text of a build. Needs jsonschema, pydantic >= 2, email-validator."""
import argparse
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import typing
import uuid
from typing import Annotated, Literal, Optional, Union

import jsonschema
import pydantic
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field

from constraints import TOKENS, Command

WORDS = TOKENS + ['": "', '", "', "https://", "http", "example.com", "P1D", "T", "Z", "@", ".org", "2024-05-01", "/", "-", "user", "cat", "dog", "::", "192.168.0.1", "+"]
WALKS, JUDGED = 800, 8


# ---- Pydantic ----
class Color(str, enum.Enum):
    red = "red"
    green = "green"
    blue = "blue"


class Level(enum.IntEnum):
    low = 1
    mid = 2
    high = 3


class Address(BaseModel):
    street: str
    city: str = Field(min_length=1, max_length=80)
    zip_code: str = Field(pattern=r"^\d{5}(-\d{4})?$")
    country: Literal["US", "DE", "FR"] = "US"


class User(BaseModel):
    id: int = Field(ge=1)
    name: str
    email: pydantic.EmailStr
    website: Optional[pydantic.HttpUrl] = None
    address: Optional[Address] = None
    tags: list[str] = Field(default_factory=list, max_length=5)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Bird(BaseModel):
    kind: Literal["bird"]
    wings: Level


class Household(BaseModel):
    pet: Union[Cat, Dog] = Field(discriminator="kind")


class Zoo(BaseModel):
    animals: list[Annotated[Union[Cat, Dog, Bird], Field(discriminator="kind")]] = Field(max_length=3)
    keeper: Optional[User] = None


class Either(BaseModel):
    pet: Union[Cat, Dog]


class Tree(BaseModel):
    value: int
    children: list["Tree"] = Field(default_factory=list, max_length=2)


class LinkedNode(BaseModel):
    label: str
    next: Optional["LinkedNode"] = None


class Invoice(BaseModel):
    number: str = Field(pattern=r"^INV-\d{4,8}$")
    total: decimal.Decimal
    currency: Literal["EUR", "USD"]
    due: datetime.date
    lines: list["InvoiceLine"] = Field(min_length=1, max_length=3)


class InvoiceLine(BaseModel):
    description: str = Field(max_length=60)
    quantity: int = Field(gt=0, le=1000)
    unit_price: decimal.Decimal = Field(gt=0)  # pydantic's schemas leave max_digits and decimal_places out


class Event(BaseModel):
    title: str
    start: datetime.datetime
    end: Optional[datetime.datetime] = None
    at: Optional[datetime.time] = None
    duration: Optional[datetime.timedelta] = None
    attendees: list[pydantic.EmailStr] = Field(default_factory=list, max_length=2)


class Server(BaseModel):
    host: Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
    network: ipaddress.IPv4Network
    port: int = Field(ge=1, le=65535, default=443)
    url: pydantic.AnyHttpUrl
    log_path: pathlib.Path


class Secrets(BaseModel):
    password: pydantic.SecretStr = Field(min_length=8)
    token: Optional[pydantic.SecretBytes] = None
    blob: pydantic.Base64Bytes
    raw: bytes


class Identified(BaseModel):
    id: uuid.UUID
    version4: pydantic.UUID4
    parent: Optional[uuid.UUID] = None


class Palette(BaseModel):
    colors: set[Color] = Field(min_length=1)
    levels: frozenset[Level]
    flags: set[bool]
    favourite: Color


class Inventory(BaseModel):
    counts: dict[Literal["apple", "pear"], int]
    by_color: dict[Color, float]
    notes: dict[str, str]
    codes: dict[Annotated[str, Field(pattern="^[a-z]{2,4}$")], int]
    short: dict[Annotated[str, Field(max_length=5)], bool]


class Ids(BaseModel):
    by_id: dict[uuid.UUID, str] = Field(max_length=2)
    by_day: dict[datetime.date, int] = Field(max_length=2)


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int
    b: Optional[str] = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int
    __pydantic_extra__: dict[str, int]


class Int64(BaseModel):
    signed: int = Field(ge=-(2**63), le=2**63 - 1)
    unsigned: int = Field(ge=0, le=2**64 - 1)
    large: int = Field(ge=10**18)


class Steps(BaseModel):
    five: int = Field(multiple_of=5)
    half: float = Field(multiple_of=0.5, ge=0, le=10)
    percent: int = Field(ge=0, le=100, multiple_of=10)


class Ratio(BaseModel):
    p: float = Field(gt=0, lt=1)
    q: pydantic.NonNegativeFloat
    r: pydantic.NegativeInt
    s: pydantic.confloat(ge=-1.5, le=1.5)


class Point(typing.NamedTuple):
    x: float
    y: float


class Shape(BaseModel):
    corners: list[Point] = Field(min_length=1, max_length=3)
    pair: tuple[int, str]
    rgb: tuple[int, int, int] = (0, 0, 0)
    many: tuple[bool, ...] = ()


class Paging(BaseModel):
    cursor: Optional[str] = Field(None, min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_=-]+$")
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc", None] = None


class Typed(typing_extensions.TypedDict, total=False):
    name: typing_extensions.Required[str]
    age: int


class Extraction(BaseModel):
    """What a model reads off a text."""

    people: list[Typed] = Field(max_length=2)
    sentiment: Literal["positive", "negative", "neutral"]
    confidence: float = Field(ge=0, le=1)
    summary: str = Field(max_length=200, description="one sentence")


class Step(BaseModel):
    explanation: str
    output: str


class MathAnswer(BaseModel):
    steps: list[Step] = Field(max_length=3)
    final_answer: str


class Search(BaseModel):
    tool: Literal["search"] = "search"
    query: str = Field(min_length=1)
    top_k: int = Field(5, ge=1, le=50)


class Fetch(BaseModel):
    tool: Literal["fetch"] = "fetch"
    url: pydantic.HttpUrl
    method: Literal["GET", "POST"] = "GET"


class Finish(BaseModel):
    tool: Literal["finish"] = "finish"
    answer: Union[str, int, bool, None] = None


class Agent(BaseModel):
    thought: str
    action: Union[Search, Fetch, Finish] = Field(discriminator="tool")


class Slug(BaseModel):
    slug: Annotated[str, Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$", min_length=3, max_length=40)]
    hex: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]
    phone: Annotated[str, Field(pattern=r"^\+?[1-9]\d{1,14}$")]


class Password(BaseModel):
    strong: str = Field(json_schema_extra={"pattern": r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,20}$"})


class Config(BaseModel):
    name: str
    values: dict[str, Union[int, float, str, bool, None]]
    nested: dict[str, dict[str, list[int]]]
    anything: typing.Any = None


class Metric(BaseModel):
    value: Union[int, float]
    unit: Optional[Literal["ms", "s", "MiB"]] = None
    at: pydantic.AwareDatetime
    past: Optional[pydantic.PastDate] = None


class Either2(BaseModel):
    value: Union[int, str] = Field(union_mode="left_to_right")
    list_or_one: Union[list[int], int]


def wrapped(type_):
    """A class with one field of the type."""
    return pydantic.create_model("Holder", x=(type_, ...))


MODELS = [
    Address, User, Household, Zoo, Either, Tree, LinkedNode, Invoice, InvoiceLine, Event, Server, Secrets, Identified, Palette, Inventory, Ids, Closed, Open, Int64,
    Steps, Ratio, Shape, Paging, Extraction, MathAnswer, Agent, Slug, Password, Config, Either2,
    wrapped(pydantic.HttpUrl), wrapped(pydantic.AnyUrl), wrapped(Annotated[pydantic.EmailStr, Field(max_length=40)]), wrapped(datetime.date), wrapped(datetime.datetime),
    wrapped(datetime.time), wrapped(datetime.timedelta), wrapped(pathlib.Path), wrapped(ipaddress.IPv6Address), wrapped(pydantic.IPvAnyAddress), wrapped(bytes),
    wrapped(decimal.Decimal), wrapped(Optional[decimal.Decimal]), wrapped(list[decimal.Decimal]),
    wrapped(Annotated[decimal.Decimal, Field(ge=0, le=100)]), wrapped(set[Color]), wrapped(frozenset[Literal[1, 2, 3]]), wrapped(dict[Literal["a", "b"], int]),
    wrapped(dict[str, list[bool]]), wrapped(Literal["a", 1, True, None]), wrapped(list[Literal["x"]]), wrapped(Annotated[list[int], Field(min_length=2, max_length=4)]),
    wrapped(Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)]), wrapped(pydantic.PositiveInt), wrapped(pydantic.StrictBool), wrapped(pydantic.NonNegativeInt),
    wrapped(pydantic.Base64UrlBytes), wrapped(Annotated[dict[str, int], Field(min_length=1, max_length=3)]), wrapped(set[str]), wrapped(frozenset[int]),
]


# ---- Tools of MCP servers, as their lists of tools give them ----
def tool(properties, required=(), **more):
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {}), **more}


def zod(properties, required=(), **more):
    return tool(properties, required, additionalProperties=False, **{"$schema": "http://json-schema.org/draft-07/schema#"}, **more)


TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
PAGE = {"page": {"type": "number", "description": "Page number for pagination (default: 1)"}, "perPage": {"type": "number", "minimum": 1, "maximum": 100}}
REPOSITORY = {"owner": {"type": "string", "description": "Repository owner"}, "repo": TEXT}
ENTITY = {"type": "object", "properties": {"name": TEXT, "entityType": TEXT, "observations": TEXTS}, "required": ["name", "entityType", "observations"], "additionalProperties": False}
PLACE = {"type": "object", "properties": {"latitude": NUMBER, "longitude": NUMBER}, "required": ["latitude", "longitude"]}
TOOLS = {
    "filesystem read_text_file": zod({"path": TEXT, "tail": {"type": "number", "description": "the last N lines"}, "head": NUMBER}, ["path"]),
    "filesystem read_multiple_files": zod({"paths": {"type": "array", "items": TEXT, "minItems": 1}}, ["paths"]),
    "filesystem edit_file": zod({"path": TEXT, "edits": {"type": "array", "items": {"type": "object", "properties": {"oldText": {"type": "string"}, "newText": TEXT},
                                 "required": ["oldText", "newText"], "additionalProperties": False}}, "dryRun": {"type": "boolean", "default": False}}, ["path", "edits"]),
    "filesystem list_directory_with_sizes": zod({"path": TEXT, "sortBy": {"type": "string", "enum": ["name", "size"], "default": "name"}}, ["path"]),
    "filesystem search_files": zod({"path": TEXT, "pattern": TEXT, "excludePatterns": {"type": "array", "items": TEXT, "default": []}}, ["path", "pattern"]),
    "filesystem list_allowed_directories": tool({}),
    "github create_issue": zod({**REPOSITORY, "title": TEXT, "body": TEXT, "assignees": TEXTS, "milestone": NUMBER, "labels": TEXTS}, ["owner", "repo", "title"]),
    "github list_issues": zod({**REPOSITORY, "direction": {"type": "string", "enum": ["asc", "desc"]}, "labels": TEXTS, "page": NUMBER, "per_page": NUMBER,
                               "since": TEXT, "sort": {"type": "string", "enum": ["created", "updated", "comments"]}, "state": {"type": "string", "enum": ["open", "closed", "all"]}}, ["owner", "repo"]),
    "github create_pull_request_review": zod({**REPOSITORY, "pull_number": NUMBER, "commit_id": TEXT, "body": TEXT, "event": {"type": "string", "enum": ["APPROVE", "REQUEST_CHANGES", "COMMENT"]},
        "comments": {"type": "array", "items": {"anyOf": [
            {"type": "object", "properties": {"path": TEXT, "position": NUMBER, "body": TEXT}, "required": ["path", "position", "body"], "additionalProperties": False},
            {"type": "object", "properties": {"path": TEXT, "line": NUMBER, "body": TEXT}, "required": ["path", "line", "body"], "additionalProperties": False}]}}},
        ["owner", "repo", "pull_number", "body", "event"]),
    "github push_files": zod({**REPOSITORY, "branch": TEXT, "files": {"type": "array", "items": {"type": "object", "properties": {"path": TEXT, "content": TEXT},
                              "required": ["path", "content"], "additionalProperties": False}}, "message": TEXT}, ["owner", "repo", "branch", "files", "message"]),
    "github search_code": tool({"query": TEXT, "sort": {"type": "string"}, "order": {"type": "string", "enum": ["asc", "desc"]}, **PAGE}, ["query"]),
    "slack post_message": tool({"channel_id": {"type": "string", "pattern": "^[CGD][A-Z0-9]{8,}$"}, "text": {"type": "string", "minLength": 1, "maxLength": 4000}}, ["channel_id", "text"]),
    "slack reply_to_thread": tool({"channel_id": TEXT, "thread_ts": {"type": "string", "description": "in the format '1234567890.123456'", "pattern": "^\\d{10}\\.\\d{6}$"}, "text": TEXT}, ["channel_id", "thread_ts", "text"]),
    "slack list_channels": tool({"limit": {"type": "number", "description": "Maximum number of channels to return (default 100, max 200)", "default": 100}, "cursor": TEXT}),
    "postgres query": tool({"sql": TEXT}),
    "puppeteer navigate": tool({"url": TEXT, "launchOptions": {"type": "object", "description": "PuppeteerJS LaunchOptions"}, "allowDangerous": FLAG}, ["url"]),
    "puppeteer screenshot": tool({"name": TEXT, "selector": TEXT, "width": NUMBER, "height": NUMBER, "encoded": FLAG}, ["name"]),
    "playwright browser_click": zod({"element": TEXT, "ref": TEXT, "doubleClick": FLAG, "button": {"type": "string", "enum": ["left", "right", "middle"]},
                                     "modifiers": {"type": "array", "items": {"type": "string", "enum": ["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]}}}, ["element", "ref"]),
    "playwright browser_wait_for": zod({"time": NUMBER, "text": TEXT, "textGone": TEXT}),
    "playwright browser_fill_form": zod({"fields": {"type": "array", "items": {"type": "object", "properties": {"name": TEXT, "type": {"type": "string", "enum": ["textbox", "checkbox", "radio", "combobox", "slider"]},
                                         "ref": TEXT, "value": TEXT}, "required": ["name", "type", "ref", "value"], "additionalProperties": False}}}, ["fields"]),
    "brave web_search": tool({"query": {"type": "string", "maxLength": 400}, "count": {"type": "number", "minimum": 1, "maximum": 20, "default": 10}, "offset": {"type": "number", "minimum": 0, "maximum": 9}}, ["query"]),
    "maps directions": tool({"origin": TEXT, "destination": TEXT, "mode": {"type": "string", "enum": ["driving", "walking", "bicycling", "transit"]}}, ["origin", "destination"]),
    "maps search_places": tool({"query": TEXT, "location": PLACE, "radius": {"type": "number", "maximum": 50000}}, ["query"]),
    "maps elevation": tool({"locations": {"type": "array", "items": PLACE}}, ["locations"]),
    "fetch fetch": {"description": "Parameters for fetching a URL.", "title": "Fetch", **tool({
        "url": {"format": "uri", "minLength": 1, "title": "Url", "type": "string"}, "max_length": {"default": 5000, "exclusiveMaximum": 1000000, "exclusiveMinimum": 0, "title": "Max Length", "type": "integer"},
        "start_index": {"default": 0, "minimum": 0, "title": "Start Index", "type": "integer"}, "raw": {"default": False, "title": "Raw", "type": "boolean"}}, ["url"])},
    "git git_log": {"title": "GitLog", **tool({"repo_path": {"format": "path", "title": "Repo Path", "type": "string"}, "max_count": {"default": 10, "title": "Max Count", "type": "integer"},
                    "start_timestamp": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, "end_timestamp": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}, ["repo_path"])},
    "memory create_entities": zod({"entities": {"type": "array", "items": ENTITY}}, ["entities"]),
    "time convert_time": tool({"source_timezone": TEXT, "time": {"type": "string", "description": "HH:MM", "pattern": "^([01]\\d|2[0-3]):[0-5]\\d$"}, "target_timezone": TEXT}, ["source_timezone", "time", "target_timezone"]),
    "sequential thinking": tool({"thought": TEXT, "nextThoughtNeeded": FLAG, "thoughtNumber": {"type": "integer", "minimum": 1}, "totalThoughts": {"type": "integer", "minimum": 1}, "isRevision": FLAG,
                                 "revisesThought": {"type": "integer", "minimum": 1}, "branchFromThought": {"type": "integer", "minimum": 1}, "branchId": TEXT, "needsMoreThoughts": FLAG},
                                ["thought", "nextThoughtNeeded", "thoughtNumber", "totalThoughts"]),
    "notion create_page": tool({"parent": {"oneOf": [tool({"type": {"const": "page_id", "type": "string"}, "page_id": {"type": "string", "format": "uuid"}}, ["page_id"], additionalProperties=False),
                                                     tool({"type": {"const": "database_id", "type": "string"}, "database_id": {"type": "string", "format": "uuid"}}, ["database_id"], additionalProperties=False)]},
                                "properties": {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}, "icon": {"type": ["string", "null"], "format": "uri"}}, ["parent", "properties"]),
}

# ---- zod's toJSONSchema ----
D = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
SAFE = {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}


def strict(properties, required=None):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, "additionalProperties": False}


ZOD = {
    "object": {**D, **strict({"name": TEXT, "age": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}, "email": {"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"}})},
    "formats": {**D, **strict({"uuid": {"type": "string", "format": "uuid", "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"},
                               "url": {"type": "string", "format": "uri"}, "when": {"type": "string", "format": "date-time"}, "ip": {"type": "string", "format": "ipv4"}, "id": {"type": "string", "format": "nanoid", "pattern": "^[a-zA-Z0-9_-]{21}$"},
                               "emoji": {"type": "string", "format": "emoji"}, "b64": {"type": "string", "format": "base64", "contentEncoding": "base64"}, "span": {"type": "string", "format": "duration"}})},
    "safe integers": {**D, **strict({"a": SAFE, "b": {**SAFE, "minimum": 0}, "c": {"type": "integer", "minimum": -2147483648, "maximum": 2147483647}, "d": {"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38}})},
    "never": {**D, **strict({"a": TEXT, "gone": {"not": {}}}, ["a"])},
    "tuple": {**D, "type": "array", "prefixItems": [TEXT, NUMBER, FLAG], "items": False, "minItems": 3},
    "tuple with rest": {**D, "type": "array", "prefixItems": [TEXT, {"type": "number"}], "items": {"type": "boolean"}},
    "tuple of draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "minItems": 2, "maxItems": 2, "items": [TEXT, SAFE]},
    "record": {**D, "type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}},
    "record of enum": {**D, "type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": SAFE, "required": ["a", "b"]},
    "partial record": {**D, "type": "object", "propertyNames": {"type": "string", "enum": ["a", "b", "c"]}, "additionalProperties": FLAG},
    "record of pattern": {**D, "type": "object", "propertyNames": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 8}, "additionalProperties": {"type": "null"}},
    "union": {**D, "anyOf": [TEXT, NUMBER, {"type": "null"}]},
    "discriminated union": {**D, "oneOf": [strict({"type": {"type": "string", "const": "ok"}, "data": TEXT}), strict({"type": {"type": "string", "const": "error"}, "code": SAFE, "message": TEXT})]},
    "exclusive union": {**D, "oneOf": [strict({"a": TEXT}), strict({"b": TEXT, "c": FLAG}, ["b"])]},
    "literals": {**D, "enum": ["tuna", 12, True, None]},
    "literal": {**D, "type": "string", "const": "tuna"},
    "nullable": {**D, "anyOf": [strict({"a": {"anyOf": [SAFE, {"type": "null"}]}}), {"type": "null"}]},
    "optional": {**D, **strict({"a": TEXT, "b": {"default": 3, "type": "number"}}, [])},
    "loose object": {**D, "type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": {}},
    "catchall": {**D, "type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": {"type": "number"}},
    "intersection": {**D, "allOf": [{"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, {"type": "object", "properties": {"b": SAFE}, "required": ["b"]}]},
    "recursive": {**D, "type": "object", "properties": {"name": TEXT, "sub": {"type": "array", "maxItems": 2, "items": {"$ref": "#"}}}, "required": ["name", "sub"], "additionalProperties": False},
    "references": {**D, **strict({"home": {"$ref": "#/$defs/__schema0"}, "work": {"$ref": "#/$defs/__schema0"}}), "$defs": {"__schema0": strict({"street": TEXT})}},
    "string limits": {**D, **strict({"a": {"type": "string", "minLength": 5, "maxLength": 10, "pattern": "^[a-z].*$"}, "b": {"type": "string", "allOf": [{"pattern": "^a.*"}, {"pattern": ".*z$"}]}, "c": {"type": "string", "pattern": "^x", "maxLength": 20}})},
    "steps": {**D, **strict({"a": {"type": "number", "multipleOf": 5}, "b": {"type": "integer", "multipleOf": 3, "minimum": 10, "maximum": 30}})},
    "array limits": {**D, "type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string", "enum": ["a", "b"]}},
    "at least one": {**D, "type": "object", "properties": {"a": TEXT, "b": TEXT, "c": TEXT}, "additionalProperties": False, "minProperties": 1},
    "one of required": {**D, "type": "object", "properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "exactly one": {**D, "type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "few properties": {**D, "type": "object", "properties": {"a": SAFE}, "additionalProperties": True, "maxProperties": 3},
}

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER


def branches(schema, value, root, reached, place="#", depth=0):
    """Notes which schemas of each anyOf and oneOf the value meets."""
    if not isinstance(schema, dict) or depth > 30:
        return
    if "$ref" in schema:
        target, name = root, schema["$ref"]
        for part in name.split("/")[1:]:
            target = target[part]
        branches(target, value, root, reached, name, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        for i, each in enumerate(schema.get(keyword, [])):
            key = f"{place}/{keyword}/{i}"
            reached.setdefault(key, False)
            whole = {**each, "$defs": root.get("$defs", {})} if isinstance(each, dict) else each
            if jsonschema.Draft202012Validator(whole).is_valid(value):
                reached[key] = True
                branches(each, value, root, reached, key, depth + 1)
    for each in schema.get("allOf", []):
        branches(each, value, root, reached, place + "/allOf", depth + 1)
    if isinstance(value, dict):
        for name, each in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            branches(inner, each, root, reached, f"{place}/{name if name in schema.get('properties', {}) else '*'}", depth + 1)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for i, each in enumerate(value):
            branches(first[i] if i < len(first) else schema.get("items"), each, root, reached, f"{place}/[]", depth + 1)


def is_excused(schema):
    text = json.dumps(schema)
    return "uniqueItems" in text or "(?<" in text or "(?=" in text or "(?!" in text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    command = Command(arguments.command)
    kinds = {"models": [(model.__name__ + ("" if model.__name__ != "Holder" else f" of {model.model_fields['x'].annotation}"), model.model_json_schema(), model) for model in MODELS],
             "tools": [(name, schema, None) for name, schema in TOOLS.items()], "zod": [(name, schema, None) for name, schema in ZOD.items()]}
    wanted = {"models": 57, "tools": 28, "zod": len(ZOD)}
    failures = 0
    for kind, cases in kinds.items():
        obeyed = judged = reached_count = branch_count = 0
        for seed, (name, schema, model) in enumerate(cases):
            answer = command.ask(kind="json_schema", source=json.dumps(schema), walks=WALKS, seed=seed, tokens=WORDS)
            if "error" in answer:
                excused = is_excused(schema)
                failures += not excused
                print(f"{kind}: {name}: {'refused' if excused else 'REFUSED WITHOUT REASON'}: {answer['error'][:200]}")
                continue
            obeyed += 1
            validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema, format_checker=CHECKER)
            reached, bad, drawn = {}, None, 0
            for attempt in range(6):
                for text in answer["texts"]:
                    value = json.loads(text)
                    try:
                        validator.validate(value)
                        if model:
                            model.model_validate_json(text)
                    except (jsonschema.ValidationError, ValueError) as error:
                        bad = bad or (text[:200], str(error).replace("\n", " ")[:300])
                    branches(schema, value, schema, reached)
                drawn += len(answer["texts"])
                missed = [key for key, is_reached in reached.items() if not is_reached]
                if not missed:
                    break
                answer = command.ask(kind="json_schema", source=json.dumps(schema), walks=WALKS, seed=seed + 1000 * (attempt + 1), tokens=WORDS)
            judged += drawn
            branch_count += len(reached)
            reached_count += len(reached) - len(missed)
            if bad or missed or drawn < JUDGED:
                failures += 1
                print(f"{kind}: {name}: {drawn} texts, invalid {bad}, never met {missed}")
            elif arguments.verbose:
                print(f"{kind}: {name}: {drawn} texts, {len(reached)} branches, e.g. {answer['texts'][0][:160]}")
        failures += obeyed < wanted[kind]
        print(f"{kind}: {obeyed} of {len(cases)} obeyed, {judged} texts, {reached_count} of {branch_count} branches met")
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
