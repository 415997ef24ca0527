#pragma once

#include <memory>
#include <vector>

#include "communicator.h"

namespace hccl::pytorch {

// Python's end. A thread that takes the interpreter lock after Python has ended is unwound, which
// aborts the process. So the groups that a program leaves behind must end before Python:
// `end_groups` is Python's exit handler. Operations that end later touch nothing that may belong to
// Python.

/// Makes sure that the group ends before Python does.
void end_before_python(const std::shared_ptr<Communicator>& communicator);
/// Returns the communicators of groups that this process has made and not destroyed.
std::vector<std::shared_ptr<Communicator>> living_communicators();

/// Waits until no group has a running operation. Returns at once in a callback of an operation,
/// which would wait for itself.
void synchronize();

/// Lets running operations end, within a few seconds, and leaves all groups. If `failed` is set, an
/// exception ends the program: running operations are aborted, and other ranks get an error at
/// once.
void end_groups(bool failed) noexcept;
/// Whether `end_groups` has begun: no group can be made any more.
bool program_ends() noexcept;
/// Whether Python is ending. If so, operations that end now keep their tensors and callbacks for
/// good, and wake no thread.
bool python_ends() noexcept;
/// Called by a thread that returns from an operation to Python. Once `end_groups` has begun, the
/// thread sleeps here until the process has ended, unless the thread itself runs `end_groups`.
void sleep_if_late() noexcept;

}  // namespace hccl::pytorch
