#include "backend.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "allocator.h"
#include "exit.h"
#include "hccl/hccl_framework.h"
#include "interpreter.h"
#include "interrupt.h"

namespace hccl::pytorch {
namespace {

using std::chrono::milliseconds;

// If the program deletes a group without destroying it, its running operations get this much time.
constexpr milliseconds kGraceOfOperations{10'000};

}  // namespace

ProcessGroupHccl::ProcessGroupHccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   milliseconds timeout, std::string group_name,
                                   std::vector<uint64_t> global_ranks,
                                   const c10::intrusive_ptr<ProcessGroupHccl>& whole, bool later)
    : ProcessGroupHccl(
          later ? std::make_shared<Communicator>()
                : std::make_shared<Communicator>(*store, rank, size, timeout,
                                                 Part{whole ? whole->communicator() : nullptr,
                                                      {global_ranks.begin(), global_ranks.end()},
                                                      group_name,
                                                      false}),
          store, rank, size, c10::make_intrusive<Options>("hccl", timeout)) {
  options_->group_name = std::move(group_name);
  options_->global_ranks_in_group = std::move(global_ranks);
}

ProcessGroupHccl::ProcessGroupHccl(std::shared_ptr<Communicator> communicator,
                                   c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      store_(std::move(store)),
      communicator_(std::move(communicator)) {
  end_before_python(communicator_);
  end_on_interrupt();
  init();
}

ProcessGroupHccl::~ProcessGroupHccl() {
  if (fork_.in_child()) {  // the communicator is the parent's, so its destructor must not run
    static_cast<void>(new std::shared_ptr<Communicator>(std::move(communicator_)));
  } else {
    end(std::min(options_->timeout, kGraceOfOperations));
  }
}

WorkPtr ProcessGroupHccl::issue(Call call, std::function<void(HcclComm)> run) {
  fork_.check();
  const milliseconds timeout =
      call.timeout == c10d::kUnsetTimeout ? options_->timeout : call.timeout;
  auto work =
      c10::make_intrusive<Work>(rank_, call.type, call.title, call.inputs, std::move(call.outputs));
  if (!call.lists.empty()) work->set_lists(std::move(call.lists));
  work->set_sequence_number(++operations_);
  const auto communicator = current();
  auto task = [communicator, run = std::move(run), timeout](HcclComm comm) {
    // Autograd must not record copies into leaves and into inference tensors.
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    communicator->set_timeout(timeout);
    run(comm);
  };
  work->start(communicator->handle(), std::move(task), !call.async && !coalescing_.started());
  return coalescing_.add(work, !call.async);
}

void ProcessGroupHccl::startCoalescing() {
  fork_.check();
  coalescing_.start();
}

Refusal ProcessGroupHccl::refusal(const char* operation) {
  return Refusal(operation, [this](const std::string& text) {
    if (fork_.in_child()) return;
    const auto work =
        c10::make_intrusive<Work>(rank_, c10d::OpType::UNKNOWN, nullptr, Tensors(), Tensors());
    const auto report = [text](HcclComm comm) {
      static_cast<void>(HcclCommRefuse(comm, text.c_str()));
    };
    work->start(current()->handle(), report, true);  // after the operations issued before
  });
}

c10d::ErrorType ProcessGroupHccl::getError() {
  fork_.check();
  HcclResult state = HCCL_SUCCESS;
  check(HcclGetCommAsyncError(current()->handle(), &state), "get_error");
  return state == HCCL_SUCCESS ? c10d::ErrorType::SUCCESS : c10d::ErrorType::REMOTE_ERROR;
}

void ProcessGroupHccl::abort() {
  if (fork_.in_child()) return;  // the group is the parent's
  const WithoutInterpreterLock lock;
  current()->abort("the process group was aborted (ProcessGroup.abort)");
}

void ProcessGroupHccl::shutdown() {
  if (fork_.in_child()) return;
  end(options_->timeout);
}

void ProcessGroupHccl::end(milliseconds patience) {
  if (shrunk_) patience = milliseconds(0);  // other ranks may be dead, or may have left the group
  current()->end(patience, milliseconds(0), "the process group was destroyed while operations ran");
}

// ---- memory ----

at::Tensor ProcessGroupHccl::allocateTensor(long numel, at::TensorOptions options) {
  // DDP views its buckets for complex gradients as real numbers, twice as many.
  if (c10::isComplexType(c10::typeMetaToScalarType(options.dtype()))) {
    return at::view_as_real(heap_empty({numel}, options)).flatten();
  }
  if (pack_) {
    if (auto tensor = pack_->add(numel, options)) return *std::move(tensor);
  }
  return heap_empty({numel}, options);
}

void ProcessGroupHccl::pack_tensors(int64_t bytes) {
  pack_.reset();
  if (bytes > 0) pack_.emplace(bytes);
}

bool ProcessGroupHccl::supportsTensorAlloc(c10::DeviceIndex device) { return device < 0; }

std::shared_ptr<c10::Allocator> ProcessGroupHccl::getMemAllocator() {
  return {std::shared_ptr<void>(), heap_allocator()};  // lives as long as the process
}

}  // namespace hccl::pytorch
