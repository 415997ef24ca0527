#pragma once

#include <memory>
#include <vector>

#include "communicator.h"

namespace hccl::pytorch {

// Python's end. Python unwinds a thread that takes the interpreter lock after Python has ended, and
// that aborts the process. So groups that the program did not destroy must end before Python does:
// `end_groups` is an exit handler of Python. Operations that end later use nothing that may belong
// to Python.

/// Makes sure that the group ends before Python does.
void end_before_python(const std::shared_ptr<Communicator>& communicator);
/// Returns the communicators of groups that this process has made and not destroyed.
std::vector<std::shared_ptr<Communicator>> living_communicators();

/// Waits until no group has a running operation. Returns at once in a callback of an operation,
/// which would wait for itself.
void synchronize();

/// Waits a few seconds for running operations, aborts the others, and leaves all groups. If
/// `failed` is set, an exception ended the program. Then running operations are aborted at once, so
/// that other ranks get an error at once.
void end_groups(bool failed) noexcept;
/// Returns whether `end_groups` has begun. After that no group can be made.
bool program_ends() noexcept;
/// Returns whether Python is ending. Operations that end after that release no tensors and
/// callbacks, and wake no thread.
bool python_ends() noexcept;
/// Called by a thread that returns from an operation to Python. Once `end_groups` has begun, the
/// thread sleeps here until the process ends. The thread that runs `end_groups`, and a thread that
/// holds the interpreter lock, return.
void sleep_if_late() noexcept;

}  // namespace hccl::pytorch
