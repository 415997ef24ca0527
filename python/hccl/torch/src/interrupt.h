#pragma once

namespace hccl::pytorch {

/// After this, Ctrl-C ends the communicator's operations if Python's main thread waits in C++ (for
/// this backend, or for PyTorch's futures, as in DDP's backward) and cannot handle the signal. If
/// the user has installed a handler, nothing ends: the handler runs when the wait is over.
void end_on_interrupt();

/// Waits of this module call it. On the main thread it runs Python's signal handlers, and throws
/// the exception that they raise (KeyboardInterrupt).
void run_signal_handlers();

}  // namespace hccl::pytorch
