// Turns a backend that is written as a C++ Mesh into a plugin. One source file of the MODULE
// library libhccl_ofi.so contains this line, outside every namespace:
//
//   HCCL_EXPORT_TRANSPORT("ofi", open_ofi)   // open_ofi is an OpenFunction
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/caught.h"
#include "transport/plugin_abi.h"
#include "transport/transport.h"

namespace hccl::transport {

inline void fill_error(hccl_plugin_error& error, const Status& status) {
  error.code = static_cast<std::int32_t>(status.code());
  error.culprit = status.culprit();
  const std::size_t length = std::min(status.message().size(), sizeof error.message - 1);
  std::memcpy(error.message, status.message().data(), length);
  error.message[length] = '\0';
}

/// One open mesh of a plugin, with a Request for every outstanding token.
class PluginSession {
 public:
  explicit PluginSession(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  Mesh& mesh() { return *mesh_; }
  const Status& last_error() const { return last_error_; }

  std::int32_t send(std::int32_t peer, std::uint32_t lane, const void* bytes, std::size_t size,
                    void* token) {
    Slot* slot = take(token);
    mesh_->send(slot->request, peer, lane, {static_cast<const std::byte*>(bytes), size});
    return posted(slot);
  }
  std::int32_t recv(std::int32_t peer, std::uint32_t lane, void* bytes, std::size_t size,
                    void* token) {
    Slot* slot = take(token);
    mesh_->recv(slot->request, peer, lane, {static_cast<std::byte*>(bytes), size});
    return posted(slot);
  }
  std::uint32_t progress(hccl_plugin_completion* done, std::uint32_t capacity,
                         std::int32_t* moved) {
    *moved = mesh_->progress() ? 1 : 0;
    reported_.clear();  // the texts of the last call stay valid until now
    std::uint32_t count = 0;
    // Only a few requests are outstanding at a time, so a walk over them costs less than a queue of
    // finished requests.
    for (std::size_t i = 0; i < busy_.size() && count < capacity;) {
      Slot* slot = busy_[i];
      if (!slot->request.done()) {
        ++i;
        continue;
      }
      const Status& status = slot->request.status();
      hccl_plugin_completion& entry = done[count++];
      entry.token = slot->token;
      entry.code = static_cast<std::int32_t>(status.code());
      entry.culprit = status.culprit();
      entry.message = nullptr;
      if (!status.ok()) {
        reported_.push_back(status);
        entry.message = status.message().c_str();
      }
      // Keeps the order of posting, so that a caller gets the first failure first.
      busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(i));
      free_.push_back(slot);
    }
    return count;
  }

 private:
  struct Slot {
    Request request;
    void* token = nullptr;
  };
  Slot* take(void* token) {
    if (free_.empty()) {
      slots_.push_back(std::make_unique<Slot>());
      free_.push_back(slots_.back().get());
    }
    Slot* slot = free_.back();
    free_.pop_back();
    slot->token = token;
    return slot;
  }
  std::int32_t posted(Slot* slot) {
    if (!slot->request.done()) {
      busy_.push_back(slot);
      return HCCL_PLUGIN_POSTED;
    }
    free_.push_back(slot);
    if (slot->request.status().ok()) return HCCL_PLUGIN_DONE;
    last_error_ = slot->request.status();
    return HCCL_PLUGIN_FAILED;
  }

  std::vector<std::unique_ptr<Slot>> slots_;  // the destructor of mesh_ may still use the slots
  std::vector<Slot*> free_;
  std::vector<Slot*> busy_;
  std::vector<Status> reported_;
  Status last_error_;
  std::unique_ptr<Mesh> mesh_;
};

/// Converts the host's arguments to OpenArgs. `c` and `config` must outlive the result.
inline OpenArgs plugin_open_args(const hccl_plugin_open_args& c, Config& config) {
  const auto setting = [&](const char* name) {
    const char* value = c.setting(c.context, name);
    return std::string(value == nullptr ? "" : value);
  };
  config.ofi_provider = setting("HCCL_OFI_PROVIDER");
  config.log_level = setting("HCCL_LOG");
  OpenArgs args;
  args.rank = c.rank;
  args.size = c.size;
  if (c.hosts != nullptr) args.hosts.assign(c.hosts, c.hosts + c.size);
  args.deadline = Deadline::after(std::chrono::nanoseconds(c.timeout_ns));
  std::copy(c.key, c.key + args.key.size(), args.key.begin());
  args.address = c.address;
  args.config = &config;
  args.receives_connect = c.struct_size < sizeof c || c.ends_by_abort == 0;
  args.exchange = [&c](std::string mine, Deadline) -> Result<std::vector<std::string>> {
    std::vector<hccl_plugin_blob> all(static_cast<std::size_t>(c.size));
    if (const auto code = c.exchange(c.context, mine.data(), mine.size(), all.data()); code != 0) {
      return Status(static_cast<Code>(code), "the ranks could not exchange their addresses");
    }
    std::vector<std::string> parts;
    for (const auto& blob : all)
      parts.emplace_back(static_cast<const char*>(blob.bytes), blob.size);
    return parts;
  };
  return args;
}

template <OpenFunction kOpen>
void* plugin_open(const hccl_plugin_open_args* c, hccl_plugin_error* error) {
  try {
    Config config;
    auto mesh = kOpen(plugin_open_args(*c, config));
    if (mesh.ok()) return new PluginSession(std::move(mesh).value());
    fill_error(*error, mesh.status());
  } catch (const std::exception& thrown) {  // no exception may cross the C interface
    fill_error(*error, Status(Code::kMemory, thrown.what()));
  }
  return nullptr;
}

template <OpenFunction kOpen>
constexpr hccl_transport_plugin plugin_table(const char* name) {
  hccl_transport_plugin t{};
  t.abi_version = HCCL_TRANSPORT_PLUGIN_ABI;
  t.struct_size = sizeof t;
  t.name = name;
  t.open = &plugin_open<kOpen>;
  t.close = [](void* mesh) { delete static_cast<PluginSession*>(mesh); };
  t.send = [](void* mesh, std::int32_t peer, std::uint32_t lane, const void* bytes,
              std::size_t size, void* token) {
    return static_cast<PluginSession*>(mesh)->send(peer, lane, bytes, size, token);
  };
  t.recv = [](void* mesh, std::int32_t peer, std::uint32_t lane, void* bytes, std::size_t size,
              void* token) {
    return static_cast<PluginSession*>(mesh)->recv(peer, lane, bytes, size, token);
  };
  t.progress = [](void* mesh, hccl_plugin_completion* done, std::uint32_t capacity,
                  std::int32_t* moved) {
    return static_cast<PluginSession*>(mesh)->progress(done, capacity, moved);
  };
  t.last_error = [](void* mesh, hccl_plugin_error* error) {
    fill_error(*error, static_cast<PluginSession*>(mesh)->last_error());
  };
  t.abort = [](void* mesh, const hccl_plugin_error* reason) {
    Mesh& its = static_cast<PluginSession*>(mesh)->mesh();
    try {
      its.abort(Status(static_cast<Code>(reason->code), reason->message, reason->culprit));
    } catch (...) {  // must not throw: a destructor may be the caller
      its.abort(caught());
    }
  };
  t.sleep_prepare = [](void* mesh) {
    return static_cast<PluginSession*>(mesh)->mesh().sleeper().prepare();
  };
  t.sleep = [](void* mesh, std::uint32_t ticket, std::int64_t at_most_ns) {
    static_cast<PluginSession*>(mesh)->mesh().sleeper().sleep(ticket,
                                                              std::chrono::nanoseconds(at_most_ns));
  };
  t.sleep_awake = [](void* mesh) { static_cast<PluginSession*>(mesh)->mesh().sleeper().awake(); };
  return t;
}

}  // namespace hccl::transport

#define HCCL_EXPORT_TRANSPORT(name, open_function)       \
  const hccl_transport_plugin hccl_transport_plugin_v1 = \
      ::hccl::transport::plugin_table<open_function>(name);
