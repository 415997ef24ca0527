#!/usr/bin/env python3
"""Trains a convolutional network on handwritten digits with DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/torch/ddp_digits.py
    mpirun -np 2 python3 examples/torch/ddp_digits.py --plan

The only difference from a program for Gloo is the name "hccl". --plan lets the fusion planner cut
the gradients (hccl.torch.DistributedDataParallel). The weights are the same on any number of ranks.
"""

import digits
import torch
import torch.distributed as dist


def main() -> None:
    parser = digits.options(__doc__)
    parser.add_argument("--plan", action="store_true", help="let the planner cut the gradients")
    parser.add_argument("--trace", help="with --plan: a file for hccl-plan")
    arguments = parser.parse_args()
    rank, size = digits.join(arguments.backend)
    if arguments.plan:
        import hccl.torch

        model = hccl.torch.DistributedDataParallel(digits.Network())
    else:
        model = torch.nn.parallel.DistributedDataParallel(
            digits.Network(), gradient_as_bucket_view=True
        )
    digits.train(model, arguments, rank, size)
    if rank == 0:
        print(f"accuracy {digits.accuracy(model.module):.4f}")
        if arguments.save:
            torch.save(model.module.state_dict(), arguments.save)
        if arguments.plan:
            print(f"plan: the last gradients of the segments are {model.segments}")
            if arguments.trace:
                model.write_trace(arguments.trace)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
