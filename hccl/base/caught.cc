#include "hccl/base/caught.h"

#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "hccl/base/error_text.h"

namespace hccl {
namespace {

// Made when the library is loaded, while there is memory. Never freed, because any thread may need
// it.
const Status* const kNoMemory = new Status(Code::kOom, "out of memory");

}  // namespace

Status caught() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      const std::string limits = limit_text(ENOMEM);
      if (!limits.empty()) return Status(Code::kOom, "out of memory" + limits);
    } catch (const std::system_error& e) {  // for example, no thread can be started
      return Status(Code::kSyscall, e.what());
    } catch (const std::exception& e) {
      return Status(Code::kInternal, e.what());
    } catch (...) {
      return Status(Code::kInternal, "unknown exception");
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for a text
  }
  return *kNoMemory;
}

}  // namespace hccl
