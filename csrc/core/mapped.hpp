#pragma once

#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fedincentive {

// Parts of open files as memory: what is in the system's cache is read there, without a copy.
//
// A file may be cut or written to and a disk may fail meanwhile; the system would end the process where it then reads
// what is not there. It does not in a thread with a Watch: what is missing reads as zeros, and the files are not
// `whole` any more. (Only the handler of SIGBUS must not be changed by others meanwhile.)
class MappedFiles {
 public:
  struct Part {
    int file;  // -1: nothing of it
    int64_t offset, size;
  };

  explicit MappedFiles(const std::vector<Part>& parts);
  ~MappedFiles();
  MappedFiles(const MappedFiles&) = delete;
  MappedFiles& operator=(const MappedFiles&) = delete;

  // The first byte of a part; null where it could not be mapped, or its file is too short.
  const unsigned char* operator[](size_t number) const { return starts_[number]; }

  // Whether all that was read until now was in the files, and they are as they were at first.
  bool whole() const;

  // Puts zeros in the place of what is missing from `address` on; false: it belongs to no part. For signal handlers.
  bool replace(const void* address) noexcept;

  // Lets this thread read the files as long as it lives.
  class Watch {
   public:
    explicit Watch(MappedFiles& files);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    sigset_t mask_;
  };

 private:
  std::vector<Part> parts_;
  std::vector<struct stat> at_first_;
  std::vector<const unsigned char*> starts_;
  unsigned char *begin_ = nullptr, *first_ = nullptr, *end_ = nullptr;  // all addresses; those of the first part
  size_t span_ = 0;                                                     // and how far it is to those of the next
  std::atomic<bool> lost_{false};
};

}  // namespace fedincentive
