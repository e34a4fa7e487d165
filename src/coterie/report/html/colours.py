"""The colours of both themes. Series are after Okabe and Ito (2008), told apart with every common colour blindness, darkened or
lightened until each stands out from its background by 3 to 1 (WCAG 2.2, 1.4.11). The baseline is grey."""

SERIES = 6

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b1f24",
    "muted": "#59616b",
    "grid": "#dfe3e8",
    "axis": "#8a929c",
    "band": "#eef0f3",
    "link": "#0b5cad",
    "base": "#5b626b",
    "arm0": "#0072b2",
    "arm1": "#c4500a",
    "arm2": "#007f5c",
    "arm3": "#b0558b",
    "arm4": "#9a6a00",
    "arm5": "#3282b8",
    "sent": "#005a8c",
    "sent-paper": "#d9edf9",
    "used": "#93359a",
    "used-paper": "#f6e2f7",
    "good": "#1b7a3d",
    "bad": "#b3261e",
    "warn": "#8a5a00",
}
DARK = {
    "paper": "#14171b",
    "panel": "#1d2127",
    "ink": "#e8eaed",
    "muted": "#a5adb8",
    "grid": "#2f353d",
    "axis": "#6f7883",
    "band": "#22272e",
    "link": "#7ab8f5",
    "base": "#a9b1bb",
    "arm0": "#56b4e9",
    "arm1": "#f28a4b",
    "arm2": "#33c79a",
    "arm3": "#e39ac6",
    "arm4": "#e6b43c",
    "arm5": "#a3cdf0",
    "sent": "#8fd0f7",
    "sent-paper": "#123a52",
    "used": "#eaa6f0",
    "used-paper": "#47204b",
    "good": "#5fd08a",
    "bad": "#ff8a80",
    "warn": "#f0c060",
}

_RAMP = ((0xF2, 0xF7, 0xFB), (0x9C, 0xC9, 0xE4), (0x2E, 0x7E, 0xB8), (0x08, 0x30, 0x6B))


def ramp(share: float) -> str:
    """A colour for a value in [0, 1]: light to dark blue, the same in both themes, even in lightness."""
    at = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    low = min(int(at), len(_RAMP) - 2)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))


def ink_on(background: str) -> str:
    """Black or white, whichever is read better on "#rrggbb" (relative luminance of WCAG 2.2)."""
    parts = [int(background[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def series(arms: list[str], baseline: str | None) -> dict[str, str]:
    """Arm to colour name; from the start again after the sixth, where its shape and its label still differ."""
    others = [arm for arm in arms if arm != baseline]
    return {arm: "base" for arm in arms if arm == baseline} | {arm: f"arm{i % SERIES}" for i, arm in enumerate(others)}


def variables(palette: dict[str, str]) -> str:
    """The palette as CSS declarations."""
    return "".join(f"--{name}:{value};" for name, value in palette.items())
