"""Draw assets/pictures/gpus.svg: the real dashboard, headless, over the made-up host of the screens' tests. Run by hand."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SIZE = (140, 40)
TITLE = "eagletui connect root@gpu-host   (made-up data: eight cards decoding, one of them too hot)"


async def draw() -> str:
    from tests.screens.demo import DeskDouble, board_store

    from eagletui.app import EagleApp

    store = board_store()
    store.jobs, store.servers, store.alerts = {}, {}, {k: a for k, a in store.alerts.items() if k == "hot"}
    app = EagleApp(store, DeskDouble())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        await pilot.pause()
        await pilot.pause()
        return app.export_screenshot(title=TITLE)


def local_fonts(svg: str) -> str:
    """Without the fonts that the export would fetch from the network: the reader's own monospace font serves."""
    return re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace, Menlo, Consolas")


def main() -> int:
    path = ROOT / "assets" / "pictures" / "gpus.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(local_fonts(asyncio.run(draw())))
    print(f"{path.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
