// Gives C programs handles of objects. Use of a destroyed or invented handle is an error, never a
// crash: handles are numbers that cannot be addresses and are never used twice.
//
// Finding an object takes one atomic increment. The handle's number names a slot and a life of the
// slot. The slot's word contains the current life and the number of calls that use the object now.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/mutex.h"
#include "hccl/base/process_doorbell.h"
#include "hccl/base/status.h"
#include "hccl/base/waiter.h"

namespace hccl::api {

/// Every member is safe to use from any thread.
template <class T>
class Handles {
  struct Slot;

 public:
  using Object = std::shared_ptr<T>;

  /// Gives a call access to a living object. While a Use exists, take() fails.
  class Use {
   public:
    Use(Use&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(slot_, other.slot_);
      return *this;
    }
    ~Use() {
      if (slot_ != nullptr) slot_->word.fetch_sub(1, std::memory_order_release);
    }

    T& operator*() const { return *slot_->object; }
    T* operator->() const { return slot_->object.get(); }
    /// A copy of this pointer keeps the object beyond the call.
    const Object& shared() const { return slot_->object; }

   private:
    friend class Handles;
    explicit Use(Slot* slot) : slot_(slot) {}
    Slot* slot_;
  };

  /// `argument` names the handle in the texts of errors; `kind` is different for each table.
  Handles(std::string argument, std::uint8_t kind)
      : argument_(std::move(argument)), mark_(kMark | kind) {}
  ~Handles() {
    for (auto& each : chunks_) delete[] each.load(std::memory_order_relaxed);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  /// A forked child calls this before the first add(). Handles of the parent's table are then
  /// refused with kNotSupport. Takes no lock, because a thread of the parent may have held the lock
  /// at the fork.
  void follow(const Handles& parent) HCCL_UNCHECKED {
    used_ = of_parent_ = (parent.used_ + kChunk - 1) / kChunk * kChunk;
  }

  /// Reserves a slot for an object, so that adding the object later cannot fail.
  class Place {
   public:
    explicit Place(Handles& table) : table_(&table), index_(table.free_slot()) {}
    ~Place() {
      if (table_ != nullptr) table_->give_back(index_);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    /// Adds the object and returns its handle. May be called once.
    void* add(Object object) {
      return std::exchange(table_, nullptr)->fill(index_, std::move(object));
    }

   private:
    Handles* table_;
    std::size_t index_;
  };
  /// Adds an object and returns its handle. Like Place, throws std::bad_alloc if a million handles
  /// are alive.
  void* add(Object object) { return Place(*this).add(std::move(object)); }

  /// Finds the object of a handle. kPtr: null. kPara: the handle is invented or destroyed.
  [[gnu::always_inline]] Result<Use> get(const void* handle) const {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (Slot* const slot = find(number); slot != nullptr) {
      const std::uint64_t alive = life_of(number) << kLifeShift;
      // Most destroyed handles fail this check, before they change the count of the slot's current
      // object.
      if ((slot->word.load(std::memory_order_relaxed) & kLifeMask) == alive) {
        const std::uint64_t word = slot->word.fetch_add(1, std::memory_order_acquire);
        if ((word & (kLifeMask | kClosing)) == alive) return Use(slot);
        slot->word.fetch_sub(1, std::memory_order_relaxed);
        if ((word & kLifeMask) == alive) return get_decided(handle);
      }
    }
    return unknown(handle);
  }

  /// As get(), but the result keeps the object alive and does not make take() fail.
  Result<Object> get_shared(const void* handle) const {
    auto use = get(handle);
    if (!use.ok()) return use.status();
    return use->shared();
  }

  /// Returns kAgain if a call uses the object now. Otherwise the result is the status of get().
  Status unused(const void* handle) const {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    const Slot* const slot = find(number);
    if (slot == nullptr) return unknown(handle);
    const std::uint64_t word = slot->word.load(std::memory_order_relaxed);
    if ((word & kLifeMask) != life_of(number) << kLifeShift) return unknown(handle);
    return (word & kUsers) == 0 ? Status() : in_use();
  }

  /// Waits until no call uses the object or `idle` returns a failure, at most for `at_most`. The
  /// wait is needed because a thread may see the result of another thread's call before that call
  /// has returned.
  template <class Idle>
  void let_calls_return(const void* handle, Idle&& idle, std::chrono::nanoseconds at_most) const {
    const auto over = [&] {
      if (unused(handle).code() != Code::kAgain) return true;
      const auto object = get_shared(handle);
      return !object.ok() || !idle(**object).ok();
    };
    ProcessDoorbell nothing_rings;
    const WaitPolicy policy{.longest_nap = std::chrono::milliseconds(1)};
    const Waiter waiter{.deadline = Deadline::after(at_most), .policy = policy};
    static_cast<void>(waiter.until(over, nothing_rings));
  }

  /// Removes the handle and returns its object. kAgain: a call uses the object. If `allowed` fails,
  /// the handle stays, and the result is that failure. Concurrent calls with the handle wait for
  /// the decision; `allowed` must not use this table.
  template <class Allowed>
  Result<Object> take(const void* handle, Allowed&& allowed) {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    Slot* const slot = find(number);
    if (slot == nullptr) return unknown(handle);
    const std::uint64_t alive = life_of(number) << kLifeShift;
    const MutexLock lock(mutex_);
    std::uint64_t word = alive;
    if (!slot->word.compare_exchange_strong(word, alive | kClosing, std::memory_order_acquire)) {
      return (word & kLifeMask) == alive ? in_use() : unknown(handle);
    }
    // From here on a call that sees kClosing or another life takes back its increment at once.
    if (Status refused = allowed(*slot->object); !refused.ok()) {
      slot->word.fetch_sub(kClosing, std::memory_order_release);
      return refused;
    }
    Object object = std::move(slot->object);
    slot->word.fetch_sub(alive | kClosing, std::memory_order_release);
    if (slot->lives < kLives) free_.push_back(number & (kSlots - 1));
    return object;
  }

 private:
  // Each slot has its own cache line, because different threads (ranks) use neighbouring slots.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> word{0};  // life (0: none) | kClosing | users
    Object object;
    std::uint64_t lives = 0;  // number of lives so far; needs mutex_
  };
  // A handle's number consists of mark and kind (24 bits), life (20) and slot (20).
  static constexpr int kSlotBits = 20;
  static constexpr int kNumberBits = 40;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;
  static constexpr std::uint64_t kLives = (std::uint64_t{1} << (kNumberBits - kSlotBits)) - 1;
  static constexpr std::size_t kChunk = 256;
  static constexpr std::uint64_t kMark = 0xACC100;  // no address has these top bits
  static constexpr int kLifeShift = 32;
  static constexpr std::uint64_t kLifeMask = ~std::uint64_t{0} << kLifeShift;
  static constexpr std::uint64_t kClosing = std::uint64_t{1} << 31;
  static constexpr std::uint64_t kUsers = kClosing - 1;

  static std::uint64_t life_of(std::uint64_t number) { return (number >> kSlotBits) & kLives; }

  // Returns the slot that a number names. The slot may be empty or hold a later object.
  Slot* find(std::uint64_t number) const {
    if (number >> kNumberBits != mark_ || life_of(number) == 0) return nullptr;
    const std::size_t index = number & (kSlots - 1);
    Slot* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + index % kChunk;
  }

  std::size_t free_slot() {
    const MutexLock lock(mutex_);
    if (!free_.empty()) {
      const std::size_t index = free_.back();
      free_.pop_back();
      return index;
    }
    if (used_ == kSlots) throw std::bad_alloc();
    if (used_ % kChunk == 0) {
      free_.reserve(used_ + kChunk);  // so that take() need not allocate
      chunks_[used_ / kChunk].store(new Slot[kChunk], std::memory_order_release);
    }
    return used_++;
  }

  void give_back(std::size_t index) {
    const MutexLock lock(mutex_);
    free_.push_back(index);
  }
  void* fill(std::size_t index, Object object) {
    const MutexLock lock(mutex_);
    Slot& slot = chunks_[index / kChunk].load(std::memory_order_relaxed)[index % kChunk];
    slot.object = std::move(object);
    const std::uint64_t life = ++slot.lives;
    slot.word.fetch_add(life << kLifeShift, std::memory_order_release);
    const std::uint64_t number = (mark_ << kNumberBits) | (life << kSlotBits) | index;
    // Never an address, and never dereferenced. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
  }

  Status in_use() const {
    return Status(Code::kAgain, argument_ + " is in use, please try again later");
  }
  // Waits for the decision of a concurrent take(), then calls get().
  [[gnu::cold]] Result<Use> get_decided(const void* handle) const {
    {
      const MutexLock lock(mutex_);
    }
    return get(handle);
  }
  [[gnu::cold]] Status unknown(const void* handle) const {
    if (handle == nullptr) return Status(Code::kPtr, argument_ + " is null");
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (number >> kNumberBits == mark_ && (number & (kSlots - 1)) < of_parent_) {
      return Status(Code::kNotSupport, argument_ +
                                           " is of the process that this one was forked from; a "
                                           "forked child has none of it");
    }
    return Status(Code::kPara, argument_ + " is no handle, or was destroyed already");
  }

  std::string argument_;
  std::uint64_t mark_;
  mutable Mutex mutex_{LockLevel::kHandles};  // held by add() and take()
  std::array<std::atomic<Slot*>, kSlots / kChunk> chunks_{};
  std::vector<std::size_t> free_ HCCL_GUARDED_BY(mutex_);
  std::size_t used_ HCCL_GUARDED_BY(mutex_) = 0;  // slots ever in use
  std::size_t of_parent_ = 0;                     // slots below this index are the parent's
};

}  // namespace hccl::api
