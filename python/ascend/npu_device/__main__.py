"""python -m npu_device SCRIPT [ARGUMENT...]: runs the script like Python, but imports npu_device
first. So the script may use what the import changes, even if it does not import it."""

import sys

from hccl import _script

if len(sys.argv) < 2:
    sys.exit(__doc__)
_script.run()
