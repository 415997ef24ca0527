// Where the buffers of an operation come from.
#ifndef HCCL_CLIENT_MEMORY_H_
#define HCCL_CLIENT_MEMORY_H_

#include <hccl/hccl.h>

#include <cstddef>
#include <vector>

/// Provides the buffers. One thread uses it, with a current device. If a member fails, it prints
/// the failure on standard error and returns false. A buffer of 0 bytes is null, except if both
/// buffers are in one piece of memory.
class Memory {
 public:
  virtual ~Memory() {}
  /// All ranks call begin() before the first buffers and end() after the last, while the
  /// communicator lives.
  virtual bool begin(HcclComm) { return true; }
  virtual bool end() { return true; }
  /// Called after the communicator has been destroyed.
  virtual bool release() { return true; }
  /// All ranks call it. Gives two buffers, which are valid until give_back().
  virtual bool take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) = 0;
  virtual bool give_back() = 0;
};

/// Allocates both buffers in every take().
class PlainMemory : public Memory {
 public:
  bool take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) override;
  bool give_back() override;

 private:
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

/// Uses one range of addresses for all sizes. For larger sizes it maps further physical blocks
/// behind the existing ones, so that buffers span several blocks.
class ZeroCopyMemory : public Memory {
 public:
  /// bytes: the largest size of both buffers together.
  bool reserve(size_t bytes);

  bool begin(HcclComm comm) override;
  bool end() override;
  bool release() override;
  bool take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) override;
  bool give_back() override { return true; }

 private:
  struct Block {
    void* at;
    aclrtDrvMemHandle handle;
  };
  char* base_ = nullptr;
  size_t reserved_ = 0;
  size_t used_ = 0;
  size_t granularity_ = 0;
  HcclComm comm_ = nullptr;
  std::vector<Block> blocks_;
};

/// Makes a new window in every take(). The receive buffer directly follows the send buffer, at any
/// alignment.
class SymmetricMemory : public Memory {
 public:
  bool begin(HcclComm comm) override;
  bool take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) override;
  bool give_back() override;

 private:
  HcclComm comm_ = nullptr;
  void* base_ = nullptr;
  aclrtDrvMemHandle handle_ = nullptr;
  HcclCommSymWindow window_ = nullptr;
};

#endif  // HCCL_CLIENT_MEMORY_H_
