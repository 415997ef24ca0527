// Where the buffers of an operation come from.
#ifndef HCCL_CLIENT_MEMORY_H_
#define HCCL_CLIENT_MEMORY_H_

#include <hccl/hccl.h>

#include <cstddef>
#include <vector>

/// Used by one thread, with a current device. Every member prints its failure on standard error and
/// returns false. Buffers of 0 bytes are null, except where both lie in one piece of memory.
class Memory {
 public:
  virtual ~Memory() {}
  /// Before the first buffers and after the last, while the communicator lives. Collective.
  virtual bool begin(HcclComm) { return true; }
  virtual bool end() { return true; }
  /// After the communicator.
  virtual bool release() { return true; }
  /// Two buffers, until give_back(). Collective.
  virtual bool take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) = 0;
  virtual bool give_back() = 0;
};

/// Two allocations a time.
class PlainMemory : public Memory {
 public:
  bool take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) override;
  bool give_back() override;

 private:
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

/// One range of addresses for all sizes; larger sizes get further physical blocks behind those that
/// are there, so that buffers span several.
class ZeroCopyMemory : public Memory {
 public:
  /// bytes: the most that both buffers need.
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

/// A window of its own a time; the receive buffer lies behind the send buffer, wherever that ends.
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
