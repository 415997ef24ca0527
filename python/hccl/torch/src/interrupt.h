#pragma once

namespace hccl::pytorch {

/// Makes Ctrl-C abort the operations of all groups while Python's main thread waits in C++ code,
/// which cannot handle the signal. The main thread may wait for this backend, or for PyTorch's
/// futures, as in DDP's backward. If the user has installed a handler, no operation is aborted, and
/// the handler runs when the wait is over.
void end_on_interrupt();

/// The waits of this module call it. On the main thread it runs Python's signal handlers, and
/// throws their exception (KeyboardInterrupt).
void run_signal_handlers();

}  // namespace hccl::pytorch
