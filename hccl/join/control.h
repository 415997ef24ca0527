// The control thread of a process: it runs all nodes that the process has in control trees.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "hccl/base/doorbell.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/base/socket.h"
#include "hccl/base/thread.h"
#include "hccl/join/control_node.h"

namespace hccl::join {

/// Any thread may call, but hold(), release() and abandon() are only for use around a fork. The
/// first node creates the descriptors and the thread. The thread ends a second after the last node.
class Control {
 public:
  using NodeId = std::uint32_t;
  /// Makes a node. The node's lines use this epoll set, and tags from `tags` on.
  using Make = std::function<std::unique_ptr<ControlNode>(int epoll, std::uint64_t tags)>;

  Control() = default;
  /// Ends the thread at once. If a node has not left, the other processes consider it dead.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  Result<NodeId> add(const Make& make);
  /// The control thread calls `what` soon. No effect once the node is over.
  void post(NodeId node, std::function<void(ControlNode&)> what);
  /// The node closes its lines now, and its owner gets the reason.
  void fail(NodeId node, const Status& why) noexcept HCCL_UNCHECKED;
  /// Waits until the control thread has handled all posts, so that their frames are in the sockets,
  /// but a second at most. Returns at once in the control thread itself.
  void await();
  /// After this call the node's owner gets no more calls. The node closes its lines when all frames
  /// are sent, at the latest after kLastWords. With `lingers`, the node stays for that time
  /// instead, but at least for kLastWords. Never call it in the control thread.
  void remove(NodeId node, std::chrono::nanoseconds lingers = {});
  /// Waits until the neighbours of the node have acknowledged all its frames, or for `at_most`.
  void flush(NodeId node, std::chrono::nanoseconds at_most);
  static constexpr std::chrono::seconds kLastWords{1};
  /// Whether the thread has ended, because the program has closed its descriptors.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  void hold() HCCL_UNCHECKED { turn_.lock(); }
  void release() HCCL_UNCHECKED { turn_.unlock(); }
  void abandon() HCCL_UNCHECKED;

 private:
  struct Entry {
    std::unique_ptr<ControlNode> node;
    control::Time due{};                        // when the next turn of the node is
    control::Time ends = control::Time::max();  // when a removed node ends
    bool lingers = false;
  };
  using Post = std::pair<NodeId, std::function<void(ControlNode&)>>;
  Status begin() HCCL_REQUIRES(turn_);
  void run();
  void ring();
  Status work(bool& rests);
  Status serve() HCCL_REQUIRES(turn_);
  control::Time next() const HCCL_REQUIRES(turn_);

  std::unique_ptr<EpollSleeper> sleeper_;  // does not change once there is a node
  Mutex turn_{LockLevel::kControl};        // held in a turn, and around a fork
  std::map<NodeId, Entry> nodes_ HCCL_GUARDED_BY(turn_);
  Mutex box_mutex_{LockLevel::kControlBox};
  std::vector<Post> box_ HCCL_GUARDED_BY(box_mutex_);
  std::uint64_t posted_ HCCL_GUARDED_BY(box_mutex_) = 0;
  std::atomic<std::uint64_t> done_{0};  // how many posts of posted_ are done
  Doorbell turned_;                     // rung after each turn
  std::atomic<NodeId> last_{0};
  std::atomic<bool> rung_{false}, stopping_{false}, ended_{false};
  std::atomic<bool> resting_{false};    // the thread has had no node for a while, and ends
  std::atomic<std::thread::id> its_{};  // the id of the thread
  Thread thread_ HCCL_GUARDED_BY(turn_);
};

}  // namespace hccl::join
