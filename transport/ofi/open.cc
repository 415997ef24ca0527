// Opening and closing a mesh.
#include <utility>

#include "transport/agree.h"
#include "transport/ofi/ofi_mesh.h"

namespace hccl::transport::ofi {

Result<std::unique_ptr<Mesh>> OfiMesh::open(const OpenArgs& args) {
  Result<Endpoint> endpoint =
      Endpoint::open(args.address, args.config == nullptr ? "" : args.config->ofi_provider);
  const auto prepare = [&]() -> Result<std::string> {
    if (!endpoint.ok()) return endpoint.status();
    if (args.size > 1 << Tags::kRankBits) {
      return Status(Code::kNotSupport, "the ofi transport numbers at most " +
                                           std::to_string(1 << Tags::kRankBits) + " ranks");
    }
    if (Tags::usable_bits(endpoint->info->ep_attr->mem_tag_format) < Tags::kLeastBits) {
      return Status(Code::kNotSupport, "libfabric's provider " + std::string(endpoint->provider()) +
                                           " has tags of too few bits");
    }
    HCCL_ASSIGN_OR_RETURN(const std::string name, endpoint->name());
    ByteWriter writer;
    writer.put_text(endpoint->provider()).put_text(name);
    return writer.take();
  };
  const Result<std::string> mine = prepare();
  HCCL_ASSIGN_OR_RETURN(const std::vector<std::string> parts, agree(args, mine));

  std::vector<std::string> names;
  for (int rank = 0; rank < args.size; ++rank) {
    const std::string& part = parts[static_cast<std::size_t>(rank)];
    const std::string who = "rank " + std::to_string(rank);
    ByteReader reader(part);
    const std::string provider = reader.get_text(256);
    names.push_back(reader.get_text(512));
    if (!reader.finished()) {
      return Status(Code::kInternal, who + " sent an address that cannot be read", rank);
    }
    if (provider != endpoint->provider()) {
      return Status(Code::kPara,
                    who + " uses libfabric's provider " + provider + " but rank " +
                        std::to_string(args.rank) + " uses " + std::string(endpoint->provider()) +
                        "; set HCCL_OFI_PROVIDER to one that all have",
                    rank);
    }
    if (part.size() != mine.value().size()) {
      return Status(Code::kPara, who + " has an address of another family", rank);
    }
  }
  // These steps too may fail on one rank alone, so a second round follows them.
  const Result<std::vector<fi_addr_t>> addresses = endpoint->insert(names);
  auto sleeper = OfiSleeper::create(*endpoint);
  const Status& why = addresses.ok() ? sleeper.status() : addresses.status();
  HCCL_RETURN_IF_ERROR(agree(args, why.ok() ? Result<std::string>("") : why).status());
  const Tags tags(args.key, Tags::usable_bits(endpoint->info->ep_attr->mem_tag_format));
  std::unique_ptr<OfiMesh> mesh(
      new OfiMesh(std::move(endpoint).value(), std::move(sleeper).value(), args.rank, tags));
  mesh->peers_.reserve(addresses->size());
  for (const fi_addr_t address : *addresses) mesh->peers_.emplace_back().address = address;
  mesh->listen_for_goodbye();
  return std::unique_ptr<Mesh>(std::move(mesh));
}

OfiMesh::OfiMesh(Endpoint endpoint, std::unique_ptr<OfiSleeper> sleeper, int rank, const Tags& tags)
    : rank_(rank), tags_(tags), endpoint_(std::move(endpoint)), sleeper_(std::move(sleeper)) {
  goodbye_.kind = Ticket::OpKind::kGoodbye;
}

OfiMesh::~OfiMesh() {
  if (!closed_ && !aborted_.raised()) say_goodbye();
  // The sleeper stops watching the endpoint's descriptor before the endpoint closes.
  sleeper_->forget_endpoint();
  endpoint_.endpoint.reset();  // from here on libfabric touches no buffer
}

}  // namespace hccl::transport::ofi
