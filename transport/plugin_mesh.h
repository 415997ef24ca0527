// A Mesh over a plugin's table of functions.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/waiter.h"
#include "transport/nap_sleeper.h"
#include "transport/plugin_abi.h"
#include "transport/transport.h"

namespace hccl::transport {

class PluginMesh final : public Mesh {
 public:
  /// `table` must stay valid for ever and have passed the checks of load_plugin().
  static Result<std::unique_ptr<Mesh>> open(const hccl_transport_plugin& table,
                                            const OpenArgs& args);
  ~PluginMesh() override;

  std::string_view name() const override { return table_.name; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override;
  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override;
  bool progress() override;
  Sleeper& sleeper() override;
  void abort(Status status) override;

 private:
  /// Forwards the three calls of a Sleeper to the plugin.
  class PluginSleeper final : public Sleeper {
   public:
    PluginSleeper(const hccl_transport_plugin& table, void* mesh) : table_(table), mesh_(mesh) {}
    std::uint32_t prepare() override { return table_.sleep_prepare(mesh_); }
    void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
      table_.sleep(mesh_, ticket, at_most.count());
    }
    void awake() override { table_.sleep_awake(mesh_); }

   private:
    const hccl_transport_plugin& table_;
    void* mesh_;
  };

  PluginMesh(const hccl_transport_plugin& table, void* mesh, int rank, int size)
      : table_(table), mesh_(mesh), rank_(rank), size_(size), sleeper_(table, mesh) {}
  void posted(Request& request, std::int32_t answer);
  void finish(Request& request, std::int32_t code, std::int32_t culprit, const char* message);

  const hccl_transport_plugin& table_;
  void* mesh_;
  const int rank_;
  const int size_;
  AbortFlag aborted_;
  PluginSleeper sleeper_;
  NapSleeper nap_;
};

}  // namespace hccl::transport
