#include "transport/plugin_mesh.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hccl/base/auth.h"
#include "transport/self_link.h"

namespace hccl::transport {
namespace {

/// A plugin may give wrong numbers: an unknown code becomes kInternal, an unknown culprit kNobody.
Status make_status(std::int32_t code, std::string_view message, std::int32_t culprit, int size) {
  Code known = static_cast<Code>(code);
  if (code == 0 || to_string(known) == to_string(static_cast<Code>(-1))) known = Code::kInternal;
  if (culprit < 0 || culprit >= size) culprit = Status::kNobody;
  return Status(known, std::string(message), culprit);
}

std::string_view text_of(const hccl_plugin_error& error) {
  return std::string_view(error.message, strnlen(error.message, sizeof error.message));
}

/// The object behind the `context` of open(). It exists only while a plugin's open() runs.
class OpenContext {
 public:
  OpenContext(const OpenArgs& args, const std::string& plugin)
      : args_(args),
        hosts_(args.hosts.begin(), args.hosts.end()),
        key_(derive(args.key, "plugin " + plugin)) {}

  hccl_plugin_open_args c_args() {
    hccl_plugin_open_args c{};
    c.struct_size = sizeof c;
    c.rank = args_.rank;
    c.size = args_.size;
    c.hosts = hosts_.size() == static_cast<std::size_t>(args_.size) ? hosts_.data() : nullptr;
    c.address = args_.address.c_str();
    c.key = key_.data();
    c.timeout_ns = args_.deadline.left().count();
    c.context = this;
    c.exchange = &OpenContext::exchange;
    c.setting = &OpenContext::setting;
    c.ends_by_abort = args_.receives_connect ? 0 : 1;
    return c;
  }
  /// Success, or the failure of an exchange.
  const Status& exchange_status() const { return exchange_status_; }

 private:
  static std::int32_t exchange(void* context, const void* mine, std::size_t bytes,
                               hccl_plugin_blob* all) {
    auto& self = *static_cast<OpenContext*>(context);
    auto parts = self.args_.exchange(std::string(static_cast<const char*>(mine), bytes),
                                     self.args_.deadline);
    Status why = parts.status();
    if (why.ok() && parts->size() != static_cast<std::size_t>(self.args_.size)) {
      why = Status(Code::kInternal, "an exchange gave parts of too many or too few ranks");
    }
    if (!why.ok()) {
      self.exchange_status_ = why;
      return static_cast<std::int32_t>(why.code());
    }
    self.parts_ = std::move(parts).value();
    for (std::size_t r = 0; r < self.parts_.size(); ++r) {
      all[r] = {self.parts_[r].data(), self.parts_[r].size()};
    }
    return 0;
  }

  static const char* setting(void* context, const char* name) {
    const auto& self = *static_cast<OpenContext*>(context);
    if (name == nullptr) return nullptr;
    const std::string_view wanted = name;
    if (wanted == "HCCL_OFI_PROVIDER") {
      return self.args_.config == nullptr ? "" : self.args_.config->ofi_provider.c_str();
    }
    if (wanted == "HCCL_LOG") {
      return self.args_.config == nullptr ? "" : self.args_.config->log_level.c_str();
    }
    return nullptr;
  }

  const OpenArgs& args_;
  std::vector<std::int32_t> hosts_;
  const Key key_;
  std::vector<std::string> parts_;
  Status exchange_status_;
};

}  // namespace

Result<std::unique_ptr<Mesh>> PluginMesh::open(const hccl_transport_plugin& table,
                                               const OpenArgs& args) {
  OpenContext context(args, table.name);
  const hccl_plugin_open_args c_args = context.c_args();
  hccl_plugin_error error{};
  void* mesh = table.open(&c_args, &error);
  if (mesh == nullptr) {
    const Status why = context.exchange_status().ok()
                           ? make_status(error.code, text_of(error), error.culprit, args.size)
                           : context.exchange_status();
    return why.with_context(std::string("opening transport ") + table.name);
  }
  return std::unique_ptr<Mesh>(new PluginMesh(table, mesh, args.rank, args.size));
}

PluginMesh::~PluginMesh() { table_.close(mesh_); }

void PluginMesh::finish(Request& request, std::int32_t code, std::int32_t culprit,
                        const char* message) {
  if (code == 0) {
    request.moved_ = request.size_;
    request.finish();
  } else if (aborted_.raised()) {
    request.finish(aborted_.reason());
  } else {
    request.finish(make_status(code, message == nullptr ? "" : message, culprit, size_));
  }
}

void PluginMesh::posted(Request& request, std::int32_t answer) {
  if (answer == HCCL_PLUGIN_POSTED) return;
  if (answer == HCCL_PLUGIN_DONE) {
    finish(request, 0, Status::kNobody, nullptr);
    return;
  }
  hccl_plugin_error error{};
  table_.last_error(mesh_, &error);
  error.message[sizeof error.message - 1] = '\0';
  finish(request, error.code == 0 ? static_cast<std::int32_t>(Code::kInternal) : error.code,
         error.culprit, error.message);
}

void PluginMesh::send(Request& request, int peer, std::uint32_t lane,
                      std::span<const std::byte> bytes) {
  if (refused(request, size_, peer, lane, aborted_)) return;
  // The contract: a send never writes through data_.
  request.begin(peer, lane, const_cast<std::byte*>(bytes.data()), bytes.size());
  posted(request, table_.send(mesh_, peer, lane, bytes.data(), bytes.size(), &request));
}

void PluginMesh::recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) {
  if (refused(request, size_, peer, lane, aborted_)) return;
  request.begin(peer, lane, bytes.data(), bytes.size());
  posted(request, table_.recv(mesh_, peer, lane, bytes.data(), bytes.size(), &request));
}

bool PluginMesh::progress() {
  std::array<hccl_plugin_completion, 32> done;
  std::int32_t moved = 0;
  const std::uint32_t count = std::min<std::uint32_t>(
      table_.progress(mesh_, done.data(), done.size(), &moved), done.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    if (done[i].token == nullptr) continue;
    finish(*static_cast<Request*>(done[i].token), done[i].code, done[i].culprit, done[i].message);
  }
  const bool any = moved != 0 || count != 0;
  if (any) nap_.moved();
  return any;
}

Sleeper& PluginMesh::sleeper() {
  if (table_.sleep != nullptr) return sleeper_;
  return nap_;
}

void PluginMesh::abort(Status status) {
  if (status.ok()) status = Status(Code::kInternal, "aborted without a reason");
  hccl_plugin_error reason{};
  reason.code = static_cast<std::int32_t>(status.code());
  reason.culprit = status.culprit();
  const std::string& text = status.message();
  std::memcpy(reason.message, text.data(), std::min(text.size(), sizeof reason.message - 1));
  if (!aborted_.raise(std::move(status))) return;
  table_.abort(mesh_, &reason);
  nap_.ring();
}

}  // namespace hccl::transport
