#include "transport/tcp/tcp.h"

#include <string>
#include <vector>

#include "hccl/base/bytes.h"
#include "transport/agree.h"
#include "transport/doors.h"
#include "transport/tcp/tcp_mesh.h"

namespace hccl::transport {
namespace tcp {
namespace {

constexpr std::size_t kAddressCap = 64;

/// Encodes the address of this rank's door for the exchange.
std::string encode(std::uint16_t port, const std::string& address) {
  return ByteWriter().put(port).put_text(address).take();
}

Result<Endpoint> decode(const std::string& part, int rank) {
  ByteReader reader(part);
  const auto port = reader.get<std::uint16_t>();
  std::string address = reader.get_text(kAddressCap);
  if (!reader.finished()) {
    return Status(Code::kTcpConnect,
                  "rank " + std::to_string(rank) + " published an unreadable tcp address", rank);
  }
  return Endpoint{std::move(address), port};
}

struct Entrance {
  std::unique_ptr<EpollSleeper> sleeper;
  std::optional<Admission> admission;
  std::shared_ptr<const TlsContext> tls;  // null: connections are not encrypted
};

Result<Entrance> enter(const OpenArgs& args, const Config& config) {
  Entrance entrance;
  HCCL_ASSIGN_OR_RETURN(entrance.sleeper, EpollSleeper::create());
  const bool encrypted = config.wire == Wire::kTls;
  if (encrypted) {
    HCCL_ASSIGN_OR_RETURN(entrance.tls, make_tls_context());
  }
  HCCL_ASSIGN_OR_RETURN(std::shared_ptr<Door> door, args.doors != nullptr
                                                        ? args.doors->at(args.address)
                                                        : Door::open(args.address));
  entrance.admission.emplace(
      std::move(door),
      std::make_shared<Inbox>(args.key, args.rank, static_cast<std::size_t>(args.size), encrypted,
                              *entrance.sleeper));
  return entrance;
}

Result<std::unique_ptr<Mesh>> open(const OpenArgs& args) {
  const Config config = args.config != nullptr ? *args.config : Config{};
  // After a failure here this rank still takes part in the exchange, because all other ranks wait
  // there.
  Result<Entrance> entrance = enter(args, config);
  HCCL_ASSIGN_OR_RETURN(
      const std::vector<std::string> parts,
      agree(args, entrance.ok() ? Result<std::string>(
                                      encode(entrance->admission->door().port(), args.address))
                                : Result<std::string>(entrance.status())));
  std::vector<Endpoint> peers;
  for (int rank = 0; rank < args.size; ++rank) {
    if (args.absent(rank)) {
      peers.emplace_back();
      continue;
    }
    HCCL_ASSIGN_OR_RETURN(Endpoint endpoint, decode(parts[static_cast<std::size_t>(rank)], rank));
    peers.push_back(std::move(endpoint));
  }
  return std::unique_ptr<Mesh>(
      std::make_unique<TcpMesh>(std::move(entrance->sleeper), std::move(*entrance->admission),
                                std::move(peers), entrance->tls, args, config));
}

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Mesh>> open_tcp(const OpenArgs& args) {
  auto mesh = tcp::open(args);
  if (!mesh.ok()) return mesh.status().with_context("opening the tcp transport");
  return mesh;
}

}  // namespace hccl::transport
