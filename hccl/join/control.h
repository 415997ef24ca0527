// The control thread of a process: it runs all nodes that the process has in control trees.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/base/socket.h"
#include "hccl/base/thread.h"
#include "hccl/join/control_node.h"

namespace hccl::join {

/// Any thread may call, but hold(), release() and abandon() belong around a fork. The thread starts
/// with the first node.
class Control {
 public:
  using NodeId = std::uint32_t;
  /// Makes a node with lines in this epoll set, and with tags from the given one on.
  using Make = std::function<std::unique_ptr<ControlNode>(int epoll, std::uint64_t tags)>;

  static Result<std::shared_ptr<Control>> create();
  /// Ends the thread at once. Nodes that have not left have died.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  NodeId add(const Make& make);
  /// The thread does this soon. No effect once the node is over.
  void post(NodeId node, std::function<void(ControlNode&)> what);
  /// The node's owner hears nothing more once this returns. The node closes its lines when they
  /// have taken all frames, kLastWords later at most; one that `lingers`, only after this time.
  /// Never call it in the control thread.
  void remove(NodeId node, std::chrono::nanoseconds lingers = {});
  /// Waits until the neighbours of the node have acknowledged all that it has said, or for
  /// `at_most`.
  void flush(NodeId node, std::chrono::nanoseconds at_most);
  static constexpr std::chrono::seconds kLastWords{1};

  void hold() HCCL_UNCHECKED { turn_.lock(); }
  void release() HCCL_UNCHECKED { turn_.unlock(); }
  void abandon() HCCL_UNCHECKED;

 private:
  struct Entry {
    std::unique_ptr<ControlNode> node;
    control::Time ends = control::Time::max();  // of a node that was removed
    bool lingers = false;
  };
  explicit Control(std::unique_ptr<EpollSleeper> sleeper) : sleeper_(std::move(sleeper)) {}
  void run();
  void ring();
  void serve() HCCL_REQUIRES(turn_);
  control::Time next() const HCCL_REQUIRES(turn_);

  std::unique_ptr<EpollSleeper> sleeper_;
  Mutex turn_{LockLevel::kControl};  // held in a turn, and around a fork
  std::map<NodeId, Entry> nodes_ HCCL_GUARDED_BY(turn_);
  Mutex box_mutex_{LockLevel::kControlBox};
  std::vector<std::pair<NodeId, std::function<void(ControlNode&)>>> box_
      HCCL_GUARDED_BY(box_mutex_);
  std::atomic<NodeId> last_{0};
  std::atomic<bool> rung_{false}, stopping_{false};
  Thread thread_ HCCL_GUARDED_BY(turn_);
};

}  // namespace hccl::join
