"""python -m hccl.horovod script.py [arguments], or -m module [arguments]: runs a script that imports
horovod. Start it with a launcher: mpirun -np 4 python -m hccl.horovod script.py"""

import sys

from hccl import _script
from hccl.horovod import install


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    install()
    _script.run()


if __name__ == "__main__":
    main()
