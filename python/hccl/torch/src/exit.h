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
/// The groups' communicators that this process has made and not destroyed.
std::vector<std::shared_ptr<Communicator>> living_communicators();

/// Lets running operations end, within a few seconds, and leaves all groups. `failed`: an exception
/// ends the program. Then running operations are aborted, and other ranks get an error at once.
void end_groups(bool failed) noexcept;
/// Whether `end_groups` has begun: no group can be made any more.
bool program_ends() noexcept;
/// Whether Python is ending: operations that end now keep their tensors and callbacks for good, and
/// wake no thread.
bool python_ends() noexcept;
/// For a thread that returns from an operation to Python. Once `end_groups` has begun, every thread
/// but the one that runs it sleeps here until the process has ended.
void sleep_if_late() noexcept;

}  // namespace hccl::pytorch
