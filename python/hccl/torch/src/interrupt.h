#pragma once

namespace hccl::pytorch {

/// Makes Ctrl-C end the communicator's operations while Python's main thread waits in C++ (for this
/// backend, or for PyTorch's futures, as in DDP's backward): there it cannot handle the signal. If
/// the user has installed a handler, nothing ends: the handler runs when the wait is over.
void end_on_interrupt();

/// Called by the waits of this module. On the main thread it runs Python's signal handlers, and
/// throws their exception (KeyboardInterrupt).
void run_signal_handlers();

}  // namespace hccl::pytorch
