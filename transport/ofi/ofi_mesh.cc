#include "transport/ofi/ofi_mesh.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/agree.h"

namespace hccl::transport::ofi {

// How long closing a mesh may take to tell the peers.
constexpr std::chrono::milliseconds kGoodbyeLimit{300};

/// Keeps memory registered, and known to the mesh, for as long as it lives.
class OfiMesh::RegisteredRegion final : public Region {
 public:
  RegisteredRegion(OfiMesh& mesh, std::span<std::byte> bytes, Fid<fid_mr> region)
      : mesh_(mesh), first_(bytes.data()), region_(std::move(region)) {
    mesh_.regions_[first_] = {bytes.size(), region_.get()};
  }
  ~RegisteredRegion() override {
    const auto found = mesh_.regions_.find(first_);
    if (found != mesh_.regions_.end() && found->second.second == region_.get()) {
      mesh_.regions_.erase(found);
    }
  }

 private:
  OfiMesh& mesh_;
  std::byte* first_;
  Fid<fid_mr> region_;
};

Result<std::unique_ptr<Mesh>> OfiMesh::open(const OpenArgs& args) {
  Result<Endpoint> endpoint =
      Endpoint::open(args.address, args.config == nullptr ? "" : args.config->ofi_provider);
  // Everything that can fail here is done before the one exchange.
  const auto prepare = [&]() -> Result<std::string> {
    if (!endpoint.ok()) return endpoint.status();
    if (args.size > 1 << Tags::kRankBits) {
      return Status(Code::kNotSupport, "the ofi transport numbers at most 2^23 ranks");
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
  HCCL_ASSIGN_OR_RETURN(const std::vector<std::string> parts, agree(args, prepare()));

  const std::size_t name_size = endpoint->name().ok() ? endpoint->name().value().size() : 0;
  std::vector<std::string> names;
  for (int rank = 0; rank < args.size; ++rank) {
    ByteReader reader(parts[static_cast<std::size_t>(rank)]);
    const std::string provider = reader.get_text(256);
    names.push_back(reader.get_text(512));
    const auto who = [&] { return "rank " + std::to_string(rank); };
    if (!reader.finished()) {
      return Status(Code::kInternal, who() + " sent an address that cannot be read", rank);
    }
    if (provider != endpoint->provider()) {
      return Status(Code::kPara,
                    who() + " uses libfabric's provider " + provider + " but rank " +
                        std::to_string(args.rank) + " uses " + std::string(endpoint->provider()) +
                        "; set HCCL_OFI_PROVIDER to one that all have",
                    rank);
    }
    if (names.back().size() != name_size) {
      return Status(Code::kPara, who() + " has an address of another family", rank);
    }
  }
  HCCL_ASSIGN_OR_RETURN(const std::vector<fi_addr_t> addresses, endpoint->insert(names));
  HCCL_ASSIGN_OR_RETURN(auto sleeper, OfiSleeper::create(*endpoint));
  const Tags tags(args.key, Tags::usable_bits(endpoint->info->ep_attr->mem_tag_format));
  std::unique_ptr<OfiMesh> mesh(
      new OfiMesh(std::move(endpoint).value(), std::move(sleeper), args.rank, tags));
  mesh->peers_.resize(addresses.size());
  for (std::size_t r = 0; r < addresses.size(); ++r) mesh->peers_[r].address = addresses[r];
  mesh->listen_for_goodbye();
  return std::unique_ptr<Mesh>(std::move(mesh));
}

OfiMesh::OfiMesh(Endpoint endpoint, std::unique_ptr<OfiSleeper> sleeper, int rank, const Tags& tags)
    : rank_(rank), tags_(tags), endpoint_(std::move(endpoint)), sleeper_(std::move(sleeper)) {}

OfiMesh::~OfiMesh() {
  if (!closed_ && !aborted_.raised()) say_goodbye();
  // The sleeper's set goes first: it watches a descriptor of the endpoint.
  sleeper_->forget_endpoint();
  endpoint_.endpoint.reset();  // from here on libfabric touches no buffer
}

// ---- posting ----

bool OfiMesh::refused(Request& request, int peer, std::uint32_t lane) {
  Status why = check_post(size(), peer, lane);
  if (why.ok() && aborted_.raised()) why = aborted_.reason();
  if (why.ok()) return false;
  request.finish(std::move(why));
  return true;
}

OfiMesh::Op& OfiMesh::take_op(Request& request, bool is_send) {
  if (free_.empty()) {
    ops_.push_back(std::make_unique<Op>());
    free_.push_back(ops_.back().get());
  }
  Op* op = free_.back();
  free_.pop_back();
  op->request = &request;
  op->is_send = is_send;
  op->posted = false;
  op->place = busy_.size();
  busy_.push_back(op);
  return *op;
}

void OfiMesh::finish(Op& op, Status status) {
  busy_[op.place] = busy_.back();
  busy_[op.place]->place = op.place;
  busy_.pop_back();
  op.region.reset();
  free_.push_back(&op);
  if (status.ok()) op.request->moved_ = op.request->size_;
  op.request->finish(std::move(status));
}

void OfiMesh::send(Request& request, int peer, std::uint32_t lane,
                   std::span<const std::byte> bytes) {
  request.begin(peer, lane, const_cast<std::byte*>(bytes.data()), bytes.size());
  if (refused(request, peer, lane)) return;
  if (peer == rank_) return self_.send(request, peer, lane, bytes);
  post_send(request);
}

void OfiMesh::post_send(Request& request) {
  const int peer = request.peer_;
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (!to.dead.ok()) return request.finish(to.dead);
  to.contacted = true;
  Op& op = take_op(request, true);
  if (to.waiting.empty() && try_post(op)) return;
  if (to.waiting.empty()) waiting_peers_.push_back(peer);
  to.waiting.push_back(&op);
  note_waiting();
}

void OfiMesh::recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) {
  request.begin(peer, lane, bytes.data(), bytes.size());
  if (refused(request, peer, lane)) return;
  if (peer == rank_) return self_.recv(request, peer, lane, bytes);
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  from.contacted = true;
  Op& op = take_op(request, false);
  if (waiting_receives_.empty() && try_post(op)) {
    // The message may have come before its sender left: libfabric cancels only what has found none.
    if (!from.dead.ok() && op.posted) fi_cancel(&endpoint_.endpoint->fid, &op);
    return;
  }
  waiting_receives_.push_back(&op);
  note_waiting();
}

Result<void*> OfiMesh::descriptor(Op& op) {
  const Request& request = *op.request;
  if (!endpoint_.registers_memory() || request.size_ == 0) return nullptr;
  if (op.region == nullptr) {
    auto after = regions_.upper_bound(request.data_);
    if (after != regions_.begin()) {
      const auto& [first, region] = *std::prev(after);
      if (request.data_ + request.size_ <= first + region.first) return fi_mr_desc(region.second);
    }
    HCCL_ASSIGN_OR_RETURN(op.region, endpoint_.register_memory({request.data_, request.size_}));
  }
  return fi_mr_desc(op.region.get());
}

bool OfiMesh::try_post(Op& op) {
  Request& request = *op.request;
  auto described = descriptor(op);
  if (!described.ok()) {
    finish(op, described.status());
    return true;
  }
  std::byte* bytes = request.size_ == 0 ? &nothing_ : request.data_;
  const std::uint64_t tag = tags_.tag(op.is_send ? rank_ : request.peer_, request.lane_);
  fid_ep* endpoint = endpoint_.endpoint.get();
  const ssize_t result =
      op.is_send
          ? fi_tsend(endpoint, bytes, request.size_, *described,
                     peers_[static_cast<std::size_t>(request.peer_)].address, tag, &op)
          : fi_trecv(endpoint, bytes, request.size_, *described, FI_ADDR_UNSPEC, tag, 0, &op);
  if (result == -FI_EAGAIN) return false;
  if (result == 0) {
    op.posted = true;
    return true;
  }
  const int peer = request.peer_;
  const Status why = fabric_error(
      Code::kRemote, "rank " + std::to_string(peer) + " cannot be reached", result, peer);
  finish(op, why);
  if (op.is_send) bury(peer, why);
  return true;
}

// ---- progress ----

bool OfiMesh::progress() {
  if (closed_) return false;
  if (aborted_.raised()) {
    close_down(aborted_.reason());
    return true;
  }
  if (!listens_for_goodbye_) listen_for_goodbye();
  bool moved = read_completions();
  if (!waiting_receives_.empty() || !waiting_peers_.empty()) {
    moved |= post_waiting();
    note_waiting();
  }
  if (moved) sleeper_->moved();
  return moved;
}

bool OfiMesh::post_waiting() {
  bool moved = false;
  while (!waiting_receives_.empty()) {
    Op* op = waiting_receives_.front();
    if (!try_post(*op)) break;
    const Status& dead = peers_[static_cast<std::size_t>(op->request->peer_)].dead;
    if (!dead.ok() && op->posted) fi_cancel(&endpoint_.endpoint->fid, op);
    waiting_receives_.pop_front();
    moved = true;
  }
  // By copy: a failure in here changes the list.
  const std::vector<int> peers = waiting_peers_;
  for (const int peer : peers) {
    std::deque<Op*>& waiting = peers_[static_cast<std::size_t>(peer)].waiting;
    while (!waiting.empty()) {
      Op* op = waiting.front();
      waiting.pop_front();  // before the post, which may fail and bury the peer
      if (!try_post(*op)) {
        waiting.push_front(op);
        break;
      }
      moved = true;
    }
    if (waiting.empty()) std::erase(waiting_peers_, peer);
  }
  return moved;
}

bool OfiMesh::read_completions() {
  std::array<fi_cq_tagged_entry, 16> entries;
  bool moved = false;
  for (;;) {
    const ssize_t count = fi_cq_read(endpoint_.completions.get(), entries.data(), entries.size());
    if (count == -FI_EAGAIN || count == 0) return moved;
    moved = true;
    if (count > 0) {
      for (ssize_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)]);
      if (static_cast<std::size_t>(count) < entries.size()) return moved;
      continue;
    }
    fi_cq_err_entry error{};
    if (count == -FI_EAVAIL && fi_cq_readerr(endpoint_.completions.get(), &error, 0) == 1) {
      complete_with_error(error);
      continue;
    }
    const Status why =
        fabric_error(Code::kNetwork, "libfabric's completion queue is unusable", count);
    aborted_.raise(why);
    close_down(aborted_.reason());
    return true;
  }
}

void OfiMesh::complete(const fi_cq_tagged_entry& entry) {
  if (entry.op_context == nullptr) return;
  if (entry.op_context == &goodbye_) {
    listens_for_goodbye_ = false;
    const int peer = Tags::sender(entry.tag);
    if (peer < size() && peer != rank_) {
      bury(peer, Status(Code::kRemote,
                        "rank " + std::to_string(peer) + " has closed its side of the communicator",
                        peer));
    }
    listen_for_goodbye();
    return;
  }
  Op& op = *static_cast<Op*>(entry.op_context);
  const Request& request = *op.request;
  if (!op.is_send && entry.len != request.size_) {
    finish(op, size_mismatch(request.peer_, request.lane_, request.size_, entry.len));
  } else {
    finish(op, Status());
  }
}

void OfiMesh::complete_with_error(const fi_cq_err_entry& entry) {
  if (entry.op_context == nullptr) return;
  if (entry.op_context == &goodbye_) {
    listens_for_goodbye_ = false;
    return;
  }
  Op& op = *static_cast<Op*>(entry.op_context);
  const int peer = op.request->peer_;
  if (entry.err == FI_ETRUNC && !op.is_send) {
    finish(op, size_mismatch(peer, op.request->lane_, op.request->size_,
                             op.request->size_ + entry.olen));
    return;
  }
  const Status& dead = peers_[static_cast<std::size_t>(peer)].dead;
  if (!dead.ok()) {
    finish(op, dead);
    return;
  }
  const Status why =
      fabric_error(Code::kRemote, "rank " + std::to_string(peer) + " is gone or cannot be reached",
                   entry.err, peer);
  finish(op, why);
  bury(peer, why);
}

void OfiMesh::bury(int peer, const Status& why) {
  Peer& dead = peers_[static_cast<std::size_t>(peer)];
  if (!dead.dead.ok()) return;
  dead.dead = why;
  // What libfabric has not seen fails here; what it has comes back as cancelled or failed.
  std::erase(waiting_peers_, peer);
  for (Op* op : std::exchange(dead.waiting, {})) finish(*op, why);
  std::deque<Op*> kept;
  for (Op* op : std::exchange(waiting_receives_, {})) {
    if (op->request->peer_ == peer) {
      finish(*op, why);
    } else {
      kept.push_back(op);
    }
  }
  waiting_receives_ = std::move(kept);
  for (Op* op : busy_) {
    if (op->posted && op->request->peer_ == peer) {
      fi_cancel(&endpoint_.endpoint->fid, op);
    }
  }
}

// ---- the rest ----

void OfiMesh::close_down(const Status& why) {
  closed_ = true;
  // Closing is the one way to be sure that no buffer is touched any more: a posted send cannot be
  // cancelled everywhere, and a cancelled receive may be half written.
  sleeper_->forget_endpoint();
  endpoint_.endpoint.reset();
  waiting_receives_.clear();
  waiting_peers_.clear();
  for (Peer& peer : peers_) peer.waiting.clear();
  while (!busy_.empty()) finish(*busy_.back(), why);
  self_.fail(why);
}

void OfiMesh::listen_for_goodbye() {
  listens_for_goodbye_ = fi_trecv(endpoint_.endpoint.get(), &nothing_, 0, nullptr, FI_ADDR_UNSPEC,
                                  tags_.tag(0, Tags::kGoodbye), Tags::kSenderMask, &goodbye_) == 0;
}

void OfiMesh::say_goodbye() {
  std::deque<Request> goodbyes;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r].contacted || !peers_[r].dead.ok()) continue;
    Request& request = goodbyes.emplace_back();
    request.begin(static_cast<int>(r), Tags::kGoodbye, nullptr, 0);
    post_send(request);
  }
  const auto said = [&] {
    progress();
    return std::all_of(goodbyes.begin(), goodbyes.end(), [](const Request& r) { return r.done(); });
  };
  // A peer that does not listen any more must not hold us up.
  static_cast<void>(wait(said, Deadline::after(kGoodbyeLimit), nullptr, *sleeper_, WaitPolicy{}));
  endpoint_.endpoint.reset();
  while (!busy_.empty()) finish(*busy_.back(), Status(Code::kUnavail, "the mesh was closed"));
}

void OfiMesh::note_waiting() {
  sleeper_->set_waiting(!waiting_receives_.empty() || !waiting_peers_.empty());
}

std::unique_ptr<Region> OfiMesh::register_memory(std::span<std::byte> bytes) {
  if (closed_ || bytes.empty() || !endpoint_.registers_memory()) return std::make_unique<Region>();
  auto region = endpoint_.register_memory(bytes);
  if (!region.ok()) return std::make_unique<Region>();  // each operation then registers its own
  return std::make_unique<RegisteredRegion>(*this, bytes, std::move(region).value());
}

void OfiMesh::abort(Status status) {
  if (aborted_.raise(std::move(status))) sleeper_->ring();
}

}  // namespace hccl::transport::ofi
