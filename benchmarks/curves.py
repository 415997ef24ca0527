"""Draws ratios by size as SVG, both axes logarithmic. Standard library only."""

import math

LEFT, TOP, WIDTH, HEIGHT = 56, 46, 520, 300
FEW, MANY = (0.5, 1, 2, 3, 4, 6, 8, 12), (0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SIZES = ("8", "64", "1K", "8K", "64K", "1M", "4M", "16M", "64M", "256M")


def size_bytes(text):
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def draw(title, lines):
    """lines: (label, colour, [(bytes, ratio), ...]); a ratio below 1, where a rival is faster, is marked."""
    sizes = [size for _, _, points in lines for size, _ in points]
    ratios = [ratio for _, _, points in lines for _, ratio in points]
    top, bottom = max(ratios), min(1.0, *ratios) / 1.1
    low, high = math.log2(min(sizes)), math.log2(max(sizes))

    def x(size):
        return LEFT + WIDTH * (math.log2(size) - low) / (high - low)

    def y(ratio):
        return TOP + HEIGHT * (1 - math.log2(ratio / bottom) / math.log2(top * 1.1 / bottom))

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {LEFT + WIDTH + 20} {TOP + HEIGHT + 110}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="13">{title}</text>',
    ]
    for ratio in FEW if top <= FEW[-1] else MANY:
        if bottom <= ratio <= top * 1.1:
            stroke = '#444" stroke-width="1.5' if ratio == 1 else "#ddd"
            height = f"{y(ratio):.1f}"
            out.append(f'<path d="M{LEFT} {height}h{WIDTH}" stroke="{stroke}"/>')
            place = f'x="{LEFT - 8}" y="{height}" dy="4" text-anchor="end"'
            out.append(f"<text {place}>{ratio:g}x</text>")
    for name in SIZES:
        if low <= math.log2(size_bytes(name)) <= high:
            place = f'x="{x(size_bytes(name)):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle"'
            out.append(f"<text {place}>{name}</text>")
    place = f'x="{LEFT + 4}" y="{y(1) + 14:.1f}" fill="#444"'
    out.append(f"<text {place}>below this line a rival is faster</text>")
    for i, (label, colour, points) in enumerate(lines):
        path = " ".join(f"{x(size):.1f},{y(ratio):.1f}" for size, ratio in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        column, row = LEFT + WIDTH // 2 * (i % 2), TOP + HEIGHT + 50 + 22 * (i // 2)
        out.append(f'<path d="M{column} {row - 4}h22" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{column + 28}" y="{row}">{label}</text>')
    return "\n".join(out) + "\n</svg>\n"
