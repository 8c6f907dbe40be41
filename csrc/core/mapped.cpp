#include "mapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "process.hpp"

namespace fedincentive {
namespace {

constexpr size_t kHuge = size_t{2} << 20;  // where files lie in pages of this size, whole ones are mapped at once

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t round_down(size_t value, size_t to) { return value / to * to; }
size_t round_up(size_t value, size_t to) { return round_down(value + to - 1, to); }

bool same(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

// A handler may not allocate memory, which a thread's first look at such a variable could else do.
__attribute__((tls_model("initial-exec"))) thread_local MappedFiles* watched = nullptr;

// The handler of SIGBUS is ours as long as files are mapped, and hands on what is not about them.
int users = 0;
struct sigaction before;

void on_bus_error(int number, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by a process, and not for an address
  const int error = errno;
  const bool ours = !sent && watched && watched->replace(info->si_addr);
  errno = error;
  if (ours) return;
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && !sent)) {
    signal(number, SIG_DFL);
    raise(number);  // taken when this returns
  } else if (before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  }
}

void begin_use() {
  const std::lock_guard<std::mutex> lock(process_mutex());
  if (users++ > 0) return;
  struct sigaction action = {}, found;
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &found);
  if (found.sa_sigaction != on_bus_error) before = found;  // unless somebody else put ours back
}

void end_use() {
  const std::lock_guard<std::mutex> lock(process_mutex());
  if (--users > 0) return;
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) == 0 && now.sa_sigaction == on_bus_error) sigaction(SIGBUS, &before, nullptr);
}

}  // namespace

MappedFiles::MappedFiles(const std::vector<Part>& parts)
    : parts_(parts), at_first_(parts.size()), starts_(parts.size(), nullptr) {
  int64_t largest = 0;
  for (const Part& part : parts_)
    if (part.file >= 0) largest = std::max(largest, part.size);
  if (largest == 0) return;
  const size_t page = page_size();
  span_ = round_up(static_cast<size_t>(largest), kHuge) + 2 * kHuge;
  const size_t all = span_ * parts_.size() + kHuge;
  void* reserved = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  begin_ = static_cast<unsigned char*>(reserved);
  end_ = begin_ + all;
  first_ = begin_ + (kHuge - reinterpret_cast<uintptr_t>(begin_) % kHuge);
  begin_use();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    struct stat& file = at_first_[i];
    if (part.file < 0 || part.size == 0 || fstat(part.file, &file) != 0) continue;
    if (!S_ISREG(file.st_mode) || file.st_size < part.offset + part.size) continue;
    const auto offset = static_cast<size_t>(part.offset), from = round_down(offset, page);
    const size_t size = round_up(offset + static_cast<size_t>(part.size), page) - from;
    unsigned char* to = first_ + i * span_ + from % kHuge;
    if (mmap(to, size, PROT_READ, MAP_SHARED | MAP_FIXED, part.file, static_cast<off_t>(from)) != MAP_FAILED)
      starts_[i] = to + (offset - from);
  }
}

MappedFiles::~MappedFiles() {
  if (!begin_) return;
  munmap(begin_, static_cast<size_t>(end_ - begin_));
  end_use();
}

bool MappedFiles::whole() const {
  if (lost_) return false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!starts_[i]) continue;
    struct stat now;
    const struct stat& then = at_first_[i];
    if (fstat(parts_[i].file, &now) != 0 || now.st_size != then.st_size) return false;
    if (!same(now.st_mtim, then.st_mtim) || !same(now.st_ctim, then.st_ctim)) return false;
  }
  return true;
}

bool MappedFiles::replace(const void* address) noexcept {
  const auto place = reinterpret_cast<uintptr_t>(address), first = reinterpret_cast<uintptr_t>(first_);
  if (place < first || place >= reinterpret_cast<uintptr_t>(end_)) return false;
  lost_ = true;  // before any thread can see the zeros
  const size_t at = round_down(place - first, page_size()), next = round_down(at, span_) + span_;
  return mmap(first_ + at, next - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

MappedFiles::Watch::Watch(MappedFiles& files) {
  watched = &files;
  sigset_t bus_error;
  sigemptyset(&bus_error);
  sigaddset(&bus_error, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &bus_error, &mask_);  // blocked, it would end the process whatever the handler
}

MappedFiles::Watch::~Watch() {
  pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  watched = nullptr;
}

}  // namespace fedincentive
