"""Nodes: a header, dependences, outputs, and what the kind of node adds.

Members of a group stand flush left like any other node, so reading is driven by the names at the
beginning of lines, never by indentation.
"""

from __future__ import annotations

import re

from treadle.frontends.inductor_dump.lines import MAX_DEPTH, SectionLines
from treadle.frontends.inductor_dump.model import (
    Bracketed,
    Dep,
    Detail,
    DeviceCode,
    DumpBuffer,
    DumpCall,
    DumpLoop,
    DumpNode,
    Index,
    Layout,
    LoopBody,
    Members,
    UnknownNodeLine,
    User,
)
from treadle.frontends.inductor_dump.parse_body import parse_body
from treadle.frontends.inductor_dump.parse_values import Values, names, user, users

HEADER = re.compile(r"([^\W\d]\w*): ([^\W\d]\w*)\(([\w,]*)\)")
_BUFFER = re.compile(r"    ([^\W\d]\w*): ([^\W\d]\w*)")
_LAYOUT = re.compile(r"(\w+)_layout = (.+)")
_NUMBER = re.compile(r"-?\d{1,9}")

# What stands before the detail of a node, in order; a line with another attribute is kept.
HEAD = ("writes", "unmet_dependencies", "met_dependencies", "min_input_distance",
        "max_input_distance", "outputs", "users")  # fmt: skip
TAIL = ("node.kernel", "group.device", "group.iteration", "sizes", "aliases", "mutations")
BUFFER_PARTS = ("layout", "aliases", "mutations", "users")
CODE_TITLES = ("Triton code:", "Unfinalized multi template buffer")


class NodeParser:
    """Reads nodes from the lines of one section."""

    __slots__ = ("lines", "values")

    def __init__(self, lines: SectionLines, values: Values) -> None:
        self.lines, self.values = lines, values

    def node(self, depth: int = 0) -> DumpNode:
        """The node whose header is at the cursor."""
        lines = self.lines
        header = HEADER.fullmatch(lines.text)
        if header is None:
            raise lines.error("a node such as 'op0: SchedulerNode(ComputedBuffer)'")
        if depth > MAX_DEPTH:
            raise lines.error(f"at most {MAX_DEPTH} groups inside each other")
        line = lines.number
        lines.take()
        parts = _Attributes(lines, header[1])
        writes = self._deps(parts, "writes")
        unmet = self._deps(parts, "unmet_dependencies")
        met = self._deps(parts, "met_dependencies")
        nearest, farthest = parts.number("min_input_distance"), parts.number("max_input_distance")
        outputs, node_users = self._outputs(parts)
        detail = self._detail(parts, depth)
        return DumpNode(
            name=header[1],
            node_class=header[2],
            arguments=tuple(header[3].split(",")) if header[3] else (),
            writes=writes,
            unmet=unmet,
            met=met,
            outputs=outputs,
            detail=detail,
            min_input_distance=nearest,
            max_input_distance=farthest,
            users=node_users,
            code=self._device_code(header[1]),
            unknown=tuple(parts.unknown),
            line=line,
        )

    # -- dependences and outputs -----------------------------------------------------------
    def _deps(self, parts: _Attributes, attribute: str) -> tuple[Dep, ...]:
        line = self.lines.number
        text = parts.wrapped(attribute)
        deps = self.values.deps(text) if text is not None else None
        if deps is None:
            expected = f"'{_short(parts.owner)}.{attribute} = ' and a list of dependences"
            raise self.lines.error(expected, _found(text), line if text else None)
        return deps

    def _outputs(
        self, parts: _Attributes
    ) -> tuple[tuple[DumpBuffer, ...], tuple[User, ...] | None]:
        lines = self.lines
        opening = parts.value("outputs")
        if opening is None:
            listed = parts.value("users")
            found = users(listed) if listed is not None else None
            if found is None:
                raise lines.error(f"'{_short(parts.owner)}.outputs = ['")
            return (), found
        if opening != "[":
            raise lines.error("'[' and one output a line", f"'{opening}'", lines.number - 1)
        outputs: list[DumpBuffer] = []
        while lines.text != "]":
            outputs.append(self._buffer())
        lines.take()
        return tuple(outputs), None

    def _buffer(self) -> DumpBuffer:
        lines = self.lines
        head = _BUFFER.fullmatch(lines.text)
        if head is None:
            raise lines.error("an output such as '    buf0: ComputedBuffer', or ']'")
        line = lines.number
        lines.take()
        parts = _Attributes(lines, head[1], "    ", BUFFER_PARTS)
        layout_text = parts.value("layout")
        layout = self.values.layout(layout_text) if layout_text is not None else None
        if layout is None:
            raise lines.error(f"'    {_short(head[1])}.layout = ' and a layout", line=line + 1)
        aliases, mutations = self._names(parts, "aliases"), self._names(parts, "mutations")
        return DumpBuffer(
            name=head[1],
            ir_class=head[2],
            layout=layout,
            aliases=aliases,
            mutations=mutations,
            users=self._users(parts),
            unknown=tuple(parts.unknown),
            line=line,
        )

    def _names(self, parts: _Attributes, attribute: str) -> tuple[str, ...]:
        line = self.lines.number
        text = parts.wrapped(attribute)
        if text is None:
            return ()
        found = names(text)
        if not found:
            raise self.lines.error("a list of buffer names", _found(text), line)
        return found

    def _users(self, parts: _Attributes) -> tuple[User, ...]:
        lines, line = self.lines, self.lines.number
        text = parts.value("users")
        if text != "[":
            found = users(text) if text is not None else None
            if found is None or len(found) > 1:
                place = line if text else None
                raise lines.error(f"'    {_short(parts.owner)}.users = ['", _found(text), place)
            parts.keep_unknown("users")
            return found
        several: list[User] = []
        while lines.text != "    ]":
            one = user(lines.text[8:-1]) if lines.text.startswith(" " * 8) else None
            if one is None or not lines.text.endswith(","):
                raise lines.error("a user such as '        NodeUser(node=...),', or '    ]'")
            several.append(one)
            lines.take()
        if len(several) < 2:
            raise lines.error("two users or more between the brackets")
        lines.take()
        parts.keep_unknown("users")
        return tuple(several)

    # -- what the kind of node adds ----------------------------------------------------------
    def _detail(self, parts: _Attributes, depth: int) -> Detail | None:
        parts.keep_unknown("outputs")
        kernel = parts.value("node.kernel")
        if kernel is not None:
            if not kernel.strip():
                raise self.lines.error("the name of a kernel", line=self.lines.number - 1)
            parts.keep_unknown("node.kernel")
            return DumpCall(kernel)
        if parts.is_next("snodes[0]"):
            return self._members(parts.owner, depth)
        device = parts.value("group.device")
        return self._loop(parts, device) if device is not None else None

    def _members(self, owner: str, depth: int) -> Members:
        lines = self.lines
        snodes: list[DumpNode] = []
        while lines.text == f"{owner}.snodes[{len(snodes)}] =":
            lines.take()
            snodes.append(self.node(depth + 1))
        return Members(tuple(snodes))

    def _loop(self, parts: _Attributes, device: str) -> DumpLoop:
        iteration = self._nest(parts, "group.iteration")
        sizes = self._nest(parts, "sizes")
        aliases, mutations = self._names(parts, "aliases"), self._names(parts, "mutations")
        layouts = self._layouts()
        return DumpLoop(
            device, iteration, sizes, layouts, self._body(parts.owner), aliases, mutations
        )

    def _nest(self, parts: _Attributes, attribute: str) -> Bracketed | Index:
        line = self.lines.number
        text = parts.value(attribute)
        nest = self.values.nest(text) if text is not None else None
        if nest is None:
            place = line if text else None
            expected = f"'{_short(parts.owner)}.{attribute} = ' and sizes in brackets"
            raise self.lines.error(expected, _found(text), place)
        return nest

    def _layouts(self) -> tuple[tuple[str, Layout], ...]:
        out: list[tuple[str, Layout]] = []
        while found := _LAYOUT.fullmatch(self.lines.text):
            layout = self.values.layout(found[2])
            if layout is None:
                raise self.lines.error("a layout such as FixedLayout('cpu', torch.float32, ...)")
            out.append((found[1], layout))
            self.lines.take()
        return tuple(out)

    def _body(self, owner: str) -> LoopBody | None:
        if self.lines.text != f"class {owner}_loop_body:":
            return None
        self.lines.take()
        return parse_body(self.lines, self.values)

    def _device_code(self, owner: str) -> DeviceCode | None:
        lines = self.lines
        title = lines.text.removeprefix(f"{owner} ")
        if title not in CODE_TITLES or title == lines.text:
            return None
        lines.take()
        code: list[str] = []
        while not lines.done and (not lines.text or lines.text.startswith("    ")):
            code.append(lines.take())
        while code and not code[-1]:
            code.pop()
            lines.at -= 1
        is_last = lines.at >= lines.end
        if title == CODE_TITLES[0] and is_last and len(lines.lines) - lines.end < 3:
            lines.at = max(lines.end - 1, 0)
            raise lines.error("two blank lines after the generated code: the file is cut")
        return DeviceCode(title, tuple(code))


class _Attributes:
    """The lines `NAME.attribute = value` at the cursor; unknown ones are kept with their place."""

    __slots__ = ("indent", "known", "last", "lines", "owner", "start", "unknown")

    def __init__(
        self,
        lines: SectionLines,
        owner: str,
        indent: str = "",
        known: tuple[str, ...] = HEAD + TAIL,
    ) -> None:
        self.lines, self.owner, self.indent, self.known = lines, owner, indent, known
        self.start, self.last = f"{indent}{owner}.", "header"
        self.unknown: list[UnknownNodeLine] = []

    def is_next(self, attribute: str) -> bool:
        """Whether the line at the cursor, after unknown ones, is that attribute."""
        self.keep_unknown(self.last)
        return self.lines.text.startswith(f"{self.start}{attribute} =")

    def value(self, attribute: str) -> str | None:
        """What stands after the sign, or None if the attribute is not at the cursor."""
        if not self.is_next(attribute):
            return None
        text = self.lines.take()[len(self.start) + len(attribute) + 2 :]
        self.last = attribute
        return text.removeprefix(" ")

    def number(self, attribute: str) -> int | None:
        """A whole number, or None if the attribute is not at the cursor."""
        line = self.lines.number
        text = self.value(attribute)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text):
            raise self.lines.error("a whole number", f"'{text}'", line)
        return int(text)

    def wrapped(self, attribute: str) -> str | None:
        """Like `value`, for a list that may go on over the following lines; on one line then."""
        text = self.value(attribute)
        if text is None or text.strip():
            return text
        return " ".join(self._continued())

    def _continued(self) -> list[str]:
        lines, out = self.lines, list[str]()
        while lines.text.startswith(f"{self.indent}    ") and lines.text.strip():
            out.append(lines.take().strip(" "))
            if not out[-1].endswith(","):
                break
        return out

    def keep_unknown(self, after: str) -> None:
        """Put aside attributes of this owner that nothing here knows, with their continuation."""
        lines = self.lines
        while lines.text.startswith(self.start):
            attribute = lines.text[len(self.start) :].partition(" =")[0]
            if attribute in self.known or attribute.startswith("snodes["):
                return
            if " =" not in lines.text or not attribute.replace(".", "_").isidentifier():
                raise lines.error(f"an attribute of {_short(self.owner)}")
            while True:
                self.unknown.append(UnknownNodeLine(lines.text, after, lines.number))
                goes_on = lines.take().rstrip(" ").endswith((" =", ","))
                if not goes_on or not lines.text.startswith(f"{self.indent}    "):
                    break


def _found(text: str | None) -> str | None:
    if text is None:
        return None
    return f"'{text[:60]}{'...' if len(text) > 60 else ''}'" if text else "nothing"


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."
