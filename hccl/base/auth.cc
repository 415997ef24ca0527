#include "hccl/base/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>

#include <cstring>
#include <memory>
#include <new>

#include "hccl/base/random.h"
#include "hccl/base/socket.h"

namespace hccl {
namespace {

constexpr std::string_view kMagic = "HCCLAUT1";
constexpr std::size_t kNonce = 32;
constexpr std::size_t kMac = 32;
static_assert(Handshake::kFirst == kMagic.size() + sizeof(Uuid) + kNonce);

bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status refused(const std::string& why) {
  return Status(Code::kTcpConnect, "authentication failed: " + why);
}

std::string nonce() {
  std::string bytes(kNonce, '\0');
  if (!random_bytes(bytes.data(), bytes.size()).ok()) bytes.clear();
  return bytes;
}

}  // namespace

Handshake::Handshake(Side side, const Key& key, const Uuid& id, std::string purpose)
    : side_(side), key_(key), id_(id), purpose_(std::move(purpose)) {
  (side == Side::kClient ? client_nonce_ : server_nonce_) = nonce();
}

Uuid Handshake::id_in(std::string_view first) {
  Uuid id{};
  std::memcpy(id.data(), first.data() + kMagic.size(), id.size());
  return id;
}

std::string Handshake::first() {
  if (side_ == Side::kServer) return {};
  return std::string(kMagic) + std::string(reinterpret_cast<const char*>(id_.data()), id_.size()) +
         client_nonce_;
}

std::size_t Handshake::wants() const {
  if (finished()) return 0;
  if (side_ == Side::kClient) return kNonce + kMac;
  return stage_ == 0 ? kFirst : kMac;
}

std::string Handshake::mac(std::string_view role) const {
  std::string text(role);
  text.append(1, '\0').append(purpose_).append(1, '\0');
  text.append(reinterpret_cast<const char*>(id_.data()), id_.size());
  text.append(client_nonce_).append(server_nonce_);
  std::string out(kMac, '\0');
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(out.data()), &length) == nullptr) {
    throw std::bad_alloc();
  }
  return out;
}

Result<std::string> Handshake::step(std::string_view bytes) {
  if (bytes.size() != wants() || finished()) return refused("wrong length");
  if ((side_ == Side::kClient ? client_nonce_ : server_nonce_).size() != kNonce) {
    return Status(Code::kSyscall, "no random numbers to be had");
  }
  if (side_ == Side::kClient) {
    server_nonce_ = bytes.substr(0, kNonce);
    if (!equal(bytes.substr(kNonce), mac("server"))) return refused("the peer has another secret");
    stage_ = 2;
    return mac("client");
  }
  if (stage_ == 0) {
    if (bytes.substr(0, kMagic.size()) != kMagic) return refused("not a peer of this library");
    if (std::memcmp(bytes.data() + kMagic.size(), id_.data(), id_.size()) != 0) {
      return refused("the peer belongs to another communicator");
    }
    client_nonce_ = bytes.substr(kMagic.size() + sizeof(Uuid));
    stage_ = 1;
    return server_nonce_ + mac("server");
  }
  if (!equal(bytes, mac("client"))) return refused("the peer has another secret");
  stage_ = 2;
  return std::string();
}

Status authenticate(int fd, Handshake handshake, Deadline deadline) {
  HCCL_RETURN_IF_ERROR(send_all(fd, handshake.first(), deadline));
  while (!handshake.finished()) {
    std::string bytes(handshake.wants(), '\0');
    HCCL_RETURN_IF_ERROR(recv_all(fd, bytes, deadline));
    HCCL_ASSIGN_OR_RETURN(const std::string reply, handshake.step(bytes));
    HCCL_RETURN_IF_ERROR(send_all(fd, reply, deadline));
  }
  return {};
}

void crypto_memory(void* (*take)(std::size_t, const char*, int),
                   void* (*resize)(void*, std::size_t, const char*, int),
                   void (*give_back)(void*, const char*, int)) noexcept {
  CRYPTO_set_mem_functions(take, resize, give_back);
}

void crypto_outlives_exit() noexcept { OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr); }

void crypto_leaves_thread() noexcept { OPENSSL_thread_stop(); }

// If OpenSSL cannot compute a key, OpenSSL has no memory. Throws, because anybody could guess a key
// of zeroes.
Key derive(const Key& secret, std::string_view label) {
  Key out{};
  std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), &EVP_PKEY_CTX_free);
  std::size_t length = out.size();
  const auto* const info = reinterpret_cast<const unsigned char*>(label.data());
  if (context == nullptr || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) != 1 ||
      EVP_PKEY_CTX_set1_hkdf_key(context.get(), secret.data(), static_cast<int>(secret.size())) !=
          1 ||
      EVP_PKEY_CTX_add1_hkdf_info(context.get(), info, static_cast<int>(label.size())) != 1 ||
      EVP_PKEY_derive(context.get(), out.data(), &length) != 1) {
    throw std::bad_alloc();
  }
  return out;
}

Key digest(std::string_view text) {
  Key out{};
  unsigned length = 0;
  if (EVP_Digest(text.data(), text.size(), out.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return out;
}

std::string hex(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kHex[(static_cast<unsigned char>(c) >> 4) & 15];
    out += kHex[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

}  // namespace hccl
