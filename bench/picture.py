"""docs/images/benchmarks.svg: one bar per goal, legible on light and on dark ground."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from bench.model import WARM
from bench.page import titled, who_of

_PEER, _LEFT, _RIGHT, _END, _ROW, _TOP = 290, 440, 860, 990, 28, 54
_STYLE = """\
  <style>
    text { font: 13px system-ui, sans-serif; fill: #24292f }
    .small { font-size: 11px; fill: #57606a }
    .grid { stroke: #8c959f; stroke-opacity: .35 }
    .one { stroke: #57606a }
    .met { fill: #1a7f64 }
    .short { fill: #bf5a16 }
    .short-text { fill: #a8480a }
    .goal { stroke: #24292f; stroke-width: 2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .small { fill: #9da7b3 }
      .one { stroke: #9da7b3 }
      .met { fill: #3fb68b }
      .short, .short-text { fill: #e38b4a }
      .goal { stroke: #e6edf3 }
    }
  </style>"""


def render(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """The picture of every goal that is a ratio and was measured."""
    bars = [
        (_title(case, goal), case["contestants"][goal["peer"]]["label"], goal)
        for case in cases.values()
        for goal in case["goals"]
        if goal["ratio"] is not None
    ]
    scale = _Scale([value for *_, goal in bars for value in (goal["ratio"], goal["at_least"])])
    height = _TOP + _ROW * len(bars) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {height}" role="img">',
        "  <title>How many times as fast as the peer</title>",
        _STYLE,
        f'  <text class="small" x="14" y="{_TOP - 12}">case</text>',
        f'  <text class="small" x="{_PEER}" y="{_TOP - 12}">peer</text>',
        f'  <text class="small" x="{_END}" y="{_TOP - 12}" text-anchor="end">ratio, goal</text>',
        f'  <text x="{_LEFT}" y="20">times as fast as the peer (logarithmic); the mark is the goal</text>',
        *_grid(scale, height),
        *(line for place, bar in enumerate(bars) for line in _bar(place, *bar, scale)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _title(case: Mapping[str, Any], goal: Mapping[str, Any]) -> str:
    return titled(case, goal).replace("`", "") + (", warm" if who_of(goal) == WARM else "")


class _Scale:
    """From a ratio to a place on the picture."""

    def __init__(self, ratios: list[float]) -> None:
        known = [ratio for ratio in ratios if ratio > 0] or [1.0]
        self.low = min(0.5, *known)
        self.high = max(4.0, *known) * 1.15

    def x(self, ratio: float) -> float:
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return _LEFT + share * (_RIGHT - _LEFT)

    def marks(self) -> list[float]:
        return [mark for mark in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if self.low <= mark <= self.high]


def _grid(scale: _Scale, height: int) -> list[str]:
    lines = []
    for mark in scale.marks():
        x = scale.x(mark)
        kind = "one" if mark == 1 else "grid"
        lines.append(f'  <line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 14}"/>')
        lines.append(f'  <text class="small" x="{x:.1f}" y="{_TOP - 12}" text-anchor="middle">{mark:g}×</text>')
    return lines


def _bar(place: int, title: str, peer: str, goal: Mapping[str, Any], scale: _Scale) -> list[str]:
    y = _TOP + place * _ROW
    one, end, mark = scale.x(1), scale.x(goal["ratio"]), scale.x(goal["at_least"])
    kind = "met" if goal["met"] else "short"
    left, width = min(one, end), max(abs(end - one), 1)
    bound = "> " if goal.get("is_lower_bound") else ""
    digits = 2 if goal["ratio"] < 10 else 0
    told = f"{bound}{goal['ratio']:.{digits}f}×, {goal['at_least']:g}×"
    return [
        f'  <text x="14" y="{y + 16}">{escape(title)}</text>',
        f'  <text class="small" x="{_PEER}" y="{y + 16}">{escape(peer)}</text>',
        f'  <rect class="{kind}" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="18" rx="2"/>',
        f'  <line class="goal" x1="{mark:.1f}" x2="{mark:.1f}" y1="{y}" y2="{y + 24}"/>',
        f'  <text class="{kind}-text" x="{_END}" y="{y + 16}" text-anchor="end">{told}</text>',
    ]
