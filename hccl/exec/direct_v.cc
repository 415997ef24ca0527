#include "hccl/exec/direct_v.h"

#include <algorithm>
#include <cstring>

#include "hccl/kernels/folding.h"

namespace hccl::exec {

namespace {

constexpr std::uint32_t kFirstLane = 0;  // the lane that other collectives use first

std::byte* at(const void* buffer, std::uint64_t element, std::size_t bytes) {
  // The caller's const buffer is only read.
  return static_cast<std::byte*>(const_cast<void*>(buffer)) + element * bytes;
}

}  // namespace

std::size_t DirectV::piece_bytes(std::size_t staging_bytes, int size) {
  // Each piece is one message. Of each peer, kPieces pieces are staged instead of kWindow messages.
  return Flow::message_within(staging_bytes * Flow::kWindow / kPieces,
                              static_cast<std::size_t>(std::max(1, size - 1)));
}

std::size_t DirectV::staging_wanted(const Call& call, std::size_t piece, int size) {
  if (call.op != Op::kReduceScatterV) return 0;
  const std::size_t block = call.count * size_of(call.type);
  return std::min(block, piece) * std::min(kPieces, (block + piece - 1) / piece) *
         static_cast<std::size_t>(size - 1);
}

std::size_t DirectV::piece_length(std::size_t number) const {
  const std::size_t block = call_.count * element_;
  return std::min(piece_, block - number * piece_);
}

std::byte* DirectV::slot(std::size_t peer, std::size_t number) const {
  const std::size_t slots = std::min(kPieces, pieces_);
  const std::size_t bytes = std::min(piece_, call_.count * element_);
  return staging_ + (peer * slots + number % slots) * bytes;
}

void DirectV::begin(const Call& call, const Envelope& mine, std::byte* staging, std::size_t piece,
                    const schedule::Schedule& barrier) {
  call_ = call;
  mine_ = mine;
  element_ = size_of(call.type);
  piece_ = piece;
  staging_ = staging;
  barrier_ = &barrier;
  pieces_ = posted_ = folded_ = 0;
  all_heard_ = agreeing_ = done_ = false;
  if (call.op == Op::kReduceScatterV) {
    pieces_ = (call.count * element_ + piece - 1) / piece;
    inputs_.resize(static_cast<std::size_t>(mesh_.size()));
  }
  while (peers_.size() + 1 < static_cast<std::size_t>(mesh_.size())) {
    peers_.push_back(std::make_unique<PeerExchange>());
    peers_.back()->rank = (mesh_.rank() + static_cast<int>(peers_.size())) % mesh_.size();
  }
  for (auto& peer : peers_) open(*peer);
  copy_own();
}

// Receives start first, so that early messages find their receive.
void DirectV::open(PeerExchange& peer) {
  const auto rank = static_cast<std::size_t>(peer.rank);
  peer.heard = false;
  peer.sent = mine_;
  if (call_.op == Op::kAllToAllV) {
    peer.sent = pair_envelope(mine_, call_.in_blocks[rank].count, call_.out_blocks[rank].count);
  }
  mesh_.recv(peer.hello_in, peer.rank, kFirstLane,
             std::as_writable_bytes(std::span(&peer.received, 1)));
  peer.in.begin(Flow::Direction::kRecv, peer.rank, kFirstLane);
  if (call_.op != Op::kReduceScatterV) {
    const Block& block = call_.out_blocks[rank];
    peer.in.add({at(call_.out, block.at, element_), nullptr, block.count * element_});
  }
  mesh_.send(peer.hello_out, peer.rank, kFirstLane, std::as_bytes(std::span(&peer.sent, 1)));
  peer.out.begin(Flow::Direction::kSend, peer.rank, kFirstLane);
  if (call_.op == Op::kAllGatherV) {
    peer.out.add({at(call_.in, 0, element_), nullptr, call_.count * element_});
    return;
  }
  const Block& block = call_.in_blocks[rank];
  std::byte* const from = at(call_.in, block.at, element_);
  const std::size_t bytes = block.count * element_;
  // A reducing peer receives in pieces.
  const std::size_t cut =
      call_.op == Op::kReduceScatterV ? piece_ : std::max<std::size_t>(bytes, 1);
  for (std::size_t done = 0; done < bytes; done += cut) {
    peer.out.add({from + done, nullptr, std::min(cut, bytes - done)});
  }
}

void DirectV::copy_own() {
  const auto rank = static_cast<std::size_t>(mesh_.rank());
  if (call_.op == Op::kReduceScatterV) return;
  const Block mine = call_.op == Op::kAllGatherV ? Block{0, call_.count} : call_.in_blocks[rank];
  if (mine.count == 0) return;
  const std::byte* const from = at(call_.in, mine.at, element_);
  std::byte* const to = at(call_.out, call_.out_blocks[rank].at, element_);
  if (from != to) std::memmove(to, from, mine.count * element_);
}

Status DirectV::check_hello(PeerExchange& peer) const {
  if (peer.heard || !peer.hello_in.done()) return {};
  HCCL_RETURN_IF_ERROR(peer.hello_in.status());
  Envelope expected = mine_;
  if (call_.op == Op::kAllToAllV) {
    const auto rank = static_cast<std::size_t>(peer.rank);
    expected = pair_envelope(mine_, call_.out_blocks[rank].count, call_.in_blocks[rank].count);
  }
  if (!(peer.received == expected)) {
    return mismatch(mesh_.rank(), peer.sent, peer.rank, peer.received);
  }
  peer.heard = true;
  return {};
}

Status DirectV::check_hellos() {
  Status broken;
  bool all = true;
  for (auto& peer : peers_) {
    const Status heard = check_hello(*peer);
    // A peer whose call differs may also break a connection. The different call is then the cause,
    // so it is reported first.
    if (heard.code() == Code::kPara) return heard;
    if (broken.ok()) broken = heard;
    if (broken.ok() && peer->hello_out.done()) broken = peer->hello_out.status();
    all = all && peer->heard && peer->hello_out.done();
  }
  all_heard_ = all;
  return broken;
}

// Posts receives of further pieces. A slot is free for a new piece when the slot's previous piece
// has been folded.
void DirectV::post_pieces() {
  while (posted_ < pieces_ && posted_ < folded_ + kPieces) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      peers_[i]->in.add({slot(i, posted_), nullptr, piece_length(posted_)});
    }
    ++posted_;
  }
}

// Folds the pieces that have arrived from all ranks. Returns whether there were any.
bool DirectV::fold_pieces() {
  const auto ready = [this](const auto& peer) { return peer->in.finished() > folded_; };
  const std::size_t before = folded_;
  const Block& own = call_.in_blocks[static_cast<std::size_t>(mesh_.rank())];
  while (folded_ < posted_ && std::all_of(peers_.begin(), peers_.end(), ready)) {
    const std::size_t start = folded_ * piece_;
    inputs_[static_cast<std::size_t>(mesh_.rank())] = at(call_.in, own.at, element_) + start;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      inputs_[static_cast<std::size_t>(peers_[i]->rank)] = slot(i, folded_);
    }
    kernels::Folding::of(call_, mesh_.size())(inputs_, at(call_.out, 0, element_) + start,
                                              piece_length(folded_) / element_);
    ++folded_;
  }
  return folded_ != before;
}

// In alltoallv only the two ranks of a pair can see a mismatch. No rank finishes before all ranks
// have found their pairs equal, so a mismatch is an error on all ranks.
Status DirectV::agree() {
  if (call_.op != Op::kAllToAllV || peers_.empty() || !all_heard_) return {};
  if (!agreeing_) {
    agreeing_ = true;
    const Call nothing;
    agreement_.begin(kAgreementLane, nothing, mine_);
    agreement_.add(*barrier_, ChunkLayout(nothing, mesh_.rank(), mesh_.size(), 0, false, 0, 0),
                   nullptr);
  }
  return agreement_.done() ? Status() : agreement_.advance();
}

Status DirectV::advance() {
  if (!all_heard_) HCCL_RETURN_IF_ERROR(check_hellos());
  bool done = true;
  do {
    post_pieces();
    done = true;
    for (auto& peer : peers_) {
      for (Flow* flow : {&peer->in, &peer->out}) {
        if (Status moved = flow->advance(mesh_); !moved.ok()) {
          // A peer that made another call sends other sizes. The peer's envelope explains the
          // failure better, so check the envelopes first.
          HCCL_RETURN_IF_ERROR(check_hellos());
          return moved;
        }
        done = done && flow->done();
      }
    }
  } while (pieces_ != 0 && fold_pieces());
  HCCL_RETURN_IF_ERROR(agree());
  const bool agreed =
      call_.op != Op::kAllToAllV || peers_.empty() || (agreeing_ && agreement_.done());
  done_ = all_heard_ && done && folded_ == pieces_ && agreed;
  return {};
}

void DirectV::late(std::set<int>& peers) const {
  for (const auto& peer : peers_) {
    if (!peer->hello_in.done()) peers.insert(peer->rank);
  }
  if (agreeing_) agreement_.late(peers);
}

}  // namespace hccl::exec
