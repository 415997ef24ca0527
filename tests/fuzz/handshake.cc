// The handshake, which comes before all other bytes. Its pieces come from a stranger, or from a
// peer with changes. If a side succeeds, it has read bytes that only a holder of the key can write.
#include "hccl/base/auth.h"
#include "tests/fuzz/fuzz.h"

namespace {

using hccl::Handshake;

/// Passes the peer's bytes, or a stranger's instead. Returns whether the bytes were changed.
bool pass(hccl::fuzz::Input& input, std::string& message) {
  const std::string before = message;
  switch (input.below(4)) {
    case 0:
      break;
    case 1:
      message = input.bytes(input.byte());
      break;
    case 2:
      if (!message.empty())
        message[input.byte() % message.size()] ^= static_cast<char>(input.byte());
      break;
    default:
      message.resize(input.byte());
  }
  return message != before;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hccl::fuzz::Input input(data, size);
  const hccl::Key key{1, 2, 3};
  const hccl::Uuid id{4, 5, 6};
  Handshake client(Handshake::Side::kClient, key, id, "control");
  Handshake server(Handshake::Side::kServer, key, id, "control");
  std::string message = client.first();
  bool changed = false;
  for (int turn = 0; turn < 3; ++turn) {
    changed |= pass(input, message);
    Handshake& side = turn % 2 == 0 ? server : client;
    if (message.size() != side.wants()) PROMISE(!side.step(message).ok());
    auto reply = side.step(message);
    // The client's first nonces may have any value: the later bytes prove whether they were
    // changed.
    if (turn > 0) PROMISE(reply.ok() != changed);
    if (!reply.ok()) return 0;
    message = *reply;
  }
  PROMISE(!changed && client.finished() && server.finished());
  return 0;
}
