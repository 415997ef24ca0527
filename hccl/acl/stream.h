// Streams: ordered queues of work, each with a worker thread of its own that is started when work
// first arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "acl/acl.h"
#include "hccl/base/status.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class Stream {
 public:
  using Task = std::function<Status()>;

  Stream();
  /// Waits for what was submitted.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Puts the task in line and returns at once. Tasks run one after the other, in order, on the
  /// worker or on a thread that synchronizes. A task's failure is kept as the stream's; in
  /// stop-on-failure mode the tasks behind it are not run any more: `skipped` is called in their
  /// place (also when the stream is taken down before it), so that whoever waits for them elsewhere
  /// is let go.
  void submit(Task task, std::function<void()> skipped = nullptr);
  /// Waits until all that was submitted before is done, and runs what the worker has not begun
  /// rather than wait for it. Gives, and forgets, the first failure since the last call.
  Status synchronize();
  /// Nothing in line and nothing running.
  bool idle() const;
};

/// The stream behind a handle. kPtr: null; kPara: no stream, or destroyed.
Result<std::shared_ptr<Stream>> find_stream(aclrtStream handle);

}  // namespace hccl::acl
