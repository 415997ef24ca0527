#pragma once

#include <memory>

#include "communicator.h"

namespace hccl::pytorch {

/// Ctrl-C ends the communicator's operations if Python cannot see to it, because its main thread
/// waits in C++: for this backend, or for a future of PyTorch's, as in DDP's backward. Only where
/// Ctrl-C is a KeyboardInterrupt: a handler of the user's own runs when the wait is over.
void end_on_interrupt(const std::shared_ptr<Communicator>& communicator);

/// For waits of this module's: Python's signal handlers run, on the main thread, and what they
/// raise (KeyboardInterrupt) is thrown.
void run_signal_handlers();

}  // namespace hccl::pytorch
