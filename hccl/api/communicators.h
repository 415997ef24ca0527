// The living communicators of this process: their handles, their names, and data that only the API
// needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hccl/api/handles.h"
#include "hccl/api/instances.h"
#include "hccl/base/mutex.h"
#include "hccl/core/communicator.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {

using CommunicatorPtr = std::shared_ptr<core::Communicator>;

/// Returns kAgain while an operation of the communicator runs or is queued.
Status idle(core::Communicator& communicator);

/// Every member is safe to use from any thread.
class Communicators : public Handles<core::Communicator> {
 public:
  /// The properties of a communicator that Config lacks.
  struct About {
    HcclOpExpansionMode expansion = HCCL_OP_EXPANSION_MODE_HOST;
    bool own_deterministic = false;  ///< HcclSetConfig does not change this communicator
    int device = -1;                 ///< -1: the device of the calling thread
    std::string family;              ///< see claim()
  };

  /// Reserves a name while a communicator is being made.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(key_, other.key_);
      return *this;
    }
    ~Claim();

   private:
    friend class Communicators;
    Claim(Communicators* owner, std::uint64_t key) : owner_(owner), key_(key) {}
    Communicators* owner_ = nullptr;
    std::uint64_t key_ = 0;
  };

  Communicators() : Handles("comm", 1) {}

  /// If add() throws, it has made the communicator leave its world, because nobody can use a
  /// communicator without a handle.
  void* add(const Object& communicator) { return add(communicator, About{}); }
  void* add(const Object& communicator, About about);

  /// unused() and take() are as in Handles, but first wait for calls that are about to return.
  Status unused(const void* handle) const {
    let_calls_return(handle, idle, kReturnTime);
    return Handles::unused(handle);
  }
  template <class Allowed>
  Result<Object> take(const void* handle, Allowed&& allowed) {
    let_calls_return(handle, idle, kReturnTime);
    auto taken = Handles::take(handle, std::forward<Allowed>(allowed));
    if (taken.ok()) forget(handle);
    return taken;
  }

  /// Reserves a name. kPara: another living communicator has the name. The ranks of one
  /// communicator may be threads of this process and share its name: they pass the same `family`,
  /// which no other communicator has.
  Result<Claim> claim(const std::string& name, const std::string& family, int rank);

  /// Finds a communicator by name. If several have this name, prefers those on the calling thread's
  /// device, next those made by the calling thread, and takes the newest. kNotFound: none has the
  /// name.
  Result<HcclComm> find(const std::string& name) const;

  Result<About> about(HcclComm handle) const;
  /// Returns how many groups with these ranks and this name the rank has made before. The name ""
  /// stands for groups that each member names on its own. All members get the same number.
  std::uint64_t next_instance(HcclComm world, const std::string& name, std::vector<int> ranks);
  /// Sets the value for all communicators whose own configuration does not set a value.
  void set_deterministic(Deterministic value);
  /// From now on this communicator's own configuration sets the value.
  void set_deterministic(HcclComm handle, Deterministic value);
  /// Tells the other ranks of all remaining communicators that the program ends.
  void say_end();

 private:
  struct Entry {
    std::string name;
    std::string family;
    int rank = 0;
    std::uint64_t made = 0;
    std::thread::id maker;
    About about;
    std::weak_ptr<core::Communicator> communicator;
    Instances groups;
  };

  // The longest wait for calls that are about to return. If a call takes longer, the communicator
  // counts as in use.
  static constexpr std::chrono::seconds kReturnTime{5};

  void enter(const void* handle, Entry entry);
  void forget(const void* handle);

  mutable Mutex mutex_{LockLevel::kCommunicators};
  std::uint64_t made_ HCCL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> transports_ HCCL_GUARDED_BY(mutex_);  // of all communicators so far
  std::map<const void*, Entry> entries_ HCCL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Entry> claims_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::api
