#include "plan.hpp"

#include <algorithm>
#include <list>
#include <mutex>

#include "process.hpp"
#include "sorting.hpp"

namespace fedincentive {
namespace {

using Wires = std::vector<uint32_t>;

struct Operation {
  enum Kind { load, compare, displace, keep } kind;
  uint32_t a, b;      // load: first client, count; compare: low wire, high wire; displace: list, side; keep: wire
  uint32_t wire = 0;  // load: the first wire
};

class Builder {
 public:
  Builder(int64_t n, int64_t k, int64_t leaves) : n_(n), k_(k), leaves_(leaves) {}

  // Leaf after leaf of clients is sorted; the k smallest and k largest seen so far are kept sorted aside, and what
  // cannot be among them any more goes to the sum at once. So few wires are alive at a time, however many clients.
  void build() {
    Wires low, high;
    const int64_t first = leaf_size(0);
    uint32_t client = 0;
    for (int64_t leaf = 0; leaf < leaves_; ++leaf) {
      const uint32_t size = static_cast<uint32_t>(leaf_size(leaf));
      const Wires sorted = sort(client, size, leaf == 0 ? 0 : static_cast<uint32_t>(first));
      client += size;
      const Wires leaf_low(sorted.begin(), sorted.begin() + k_), leaf_high(sorted.end() - k_, sorted.end());
      keep(Wires(sorted.begin() + k_, sorted.end() - k_));
      if (leaf == 0) {
        low = leaf_low;
        high = leaf_high;
        continue;
      }
      displace(low, leaf_low, high, leaf_high, leaf + 1 < leaves_);
    }
    wires_ = leaves_ == 1 ? n_ : first + leaf_size(1);
    low_ = low;
    high_ = high;
    prune();
  }

  int64_t comparators() const {
    int64_t total = 0;
    for (const Operation& op : operations_) {
      if (op.kind == Operation::compare) ++total;
      if (op.kind == Operation::load) total += kBlockComparators[op.b];
      if (op.kind == Operation::displace) total += displace_comparators();
    }
    return total;
  }

  // Measured on AVX2: a comparator in registers counts 1, one that goes through the cache 2, a step's overhead 6.
  int64_t cost() const {
    int64_t total = 0;
    for (const Operation& op : operations_) {
      if (op.kind == Operation::compare) total += 2;
      if (op.kind == Operation::load) total += kBlockComparators[op.b] + 6;
      if (op.kind == Operation::displace) total += displace_comparators() + 6;
    }
    return total;
  }

  Plan plan() const;

 private:
  int64_t leaf_size(int64_t leaf) const { return n_ / leaves_ + (leaf < n_ % leaves_ ? 1 : 0); }

  void compare(uint32_t low, uint32_t high) { operations_.push_back({Operation::compare, low, high}); }

  void keep(const Wires& wires) {
    for (uint32_t wire : wires) operations_.push_back({Operation::keep, wire, 0});
  }

  Wires sort(uint32_t client, uint32_t count, uint32_t wire) {
    if (count <= kMaxBlock) {
      operations_.push_back({Operation::load, client, count, wire});
      Wires wires(count);
      for (uint32_t i = 0; i < count; ++i) wires[i] = wire + i;
      return wires;
    }
    const uint32_t half = (count + 1) / 2;
    const Wires one = sort(client, half, wire);
    const Wires two = sort(client + half, count - half, wire + half);
    return merge(one, two);
  }

  // Batcher's odd-even merge for any two lengths (Knuth, TAOCP 3, 5.3.4). The order is in the returned list of wires.
  Wires merge(const Wires& one, const Wires& two) {
    if (one.empty()) return two;
    if (two.empty()) return one;
    if (one.size() == 1 && two.size() == 1) {
      compare(one[0], two[0]);
      return {one[0], two[0]};
    }
    const Wires v = merge(every_other(one, 0), every_other(two, 0));
    const Wires w = merge(every_other(one, 1), every_other(two, 1));
    Wires result{v[0]};
    size_t i = 0;
    for (; i < w.size() && i + 1 < v.size(); ++i) {
      compare(w[i], v[i + 1]);
      result.push_back(w[i]);
      result.push_back(v[i + 1]);
    }
    result.insert(result.end(), w.begin() + i, w.end());
    result.insert(result.end(), std::min(v.begin() + i + 1, v.end()), v.end());
    return result;
  }

  static Wires every_other(const Wires& wires, size_t start) {
    Wires result;
    for (size_t i = start; i < wires.size(); i += 2) result.push_back(wires[i]);
    return result;
  }

  // Of two sorted lists of k, min(x_i, y_{k-1-i}) are the k smallest; the maxima leave for the sum. The minima rise and
  // then fall, which a bitonic merge sorts again (only needed if another leaf follows). The same mirrored for the
  // largest.
  void displace(const Wires& low, const Wires& leaf_low, const Wires& high, const Wires& leaf_high, bool more) {
    if (kMinDisplaced <= k_ && k_ <= kMaxDisplaced) {
      displace_in_registers(low, leaf_low, 0);
      displace_in_registers(high, leaf_high, 1);
      return;
    }
    for (int64_t i = 0; i < k_; ++i) compare(low[i], leaf_low[k_ - 1 - i]);
    if (more) sort_bitonic(low, true);
    keep(leaf_low);
    for (int64_t i = 0; i < k_; ++i) compare(leaf_high[i], high[k_ - 1 - i]);
    if (more) sort_bitonic(high, false);
    keep(leaf_high);
  }

  // One step does it all while the list is in registers, and adds what is displaced to the sum.
  void displace_in_registers(const Wires& list, const Wires& leaf, uint32_t highest) {
    operations_.push_back({Operation::displace, static_cast<uint32_t>(lists_.size()), highest});
    lists_.push_back({list, leaf});
  }

  int64_t displace_comparators() const { return k_ + bitonic_comparators(k_); }

  // Sorts a bitonic sequence of any length as if padded to a power of two: in front with -inf where it rises first,
  // behind with +inf where it falls first, so that comparators with padding never swap and are left out.
  void sort_bitonic(const Wires& wires, bool pad_front) {
    for_bitonic(static_cast<int>(wires.size()), pad_front, [&](int a, int b) { compare(wires[a], wires[b]); });
  }

  // Walks backward and drops comparators whose two results end up in the same set (both trimmed on one side, or both
  // kept): exchanging them changes nothing that is asked for.
  void prune() {
    enum : int64_t { kept = -1, lowest = -2, highest = -3 };
    std::vector<int64_t> fate(static_cast<size_t>(wires_), 0);
    for (uint32_t wire : low_) fate[wire] = lowest;
    for (uint32_t wire : high_) fate[wire] = highest;
    int64_t distinct = 0;
    std::vector<Operation> live;
    for (auto op = operations_.rbegin(); op != operations_.rend(); ++op) {
      if (op->kind == Operation::keep) fate[op->a] = kept;
      if (op->kind == Operation::displace) {
        for (const Wires& wires : {lists_[op->a].first, lists_[op->a].second})
          for (uint32_t wire : wires) fate[wire] = ++distinct;
      }
      if (op->kind == Operation::compare) {
        if (fate[op->a] < 0 && fate[op->a] == fate[op->b]) continue;
        fate[op->a] = ++distinct;
        fate[op->b] = ++distinct;
      }
      live.push_back(*op);
    }
    operations_.assign(live.rbegin(), live.rend());
  }

  int64_t n_, k_, leaves_, wires_ = 0;
  Wires low_, high_;
  std::vector<Operation> operations_;
  std::vector<std::pair<Wires, Wires>> lists_;
};

Plan Builder::plan() const {
  Plan plan;
  plan.n = n_;
  plan.k = k_;
  plan.wires = wires_;
  plan.comparators = comparators();
  plan.lowest = low_;
  plan.highest = high_;
  const auto extend = [&](StepKind kind, size_t position) {
    if (plan.steps.empty() || plan.steps.back().kind != kind)
      plan.steps.push_back({kind, static_cast<uint32_t>(position), 0, 0});
    ++plan.steps.back().count;
  };
  const auto list = [&](const Wires& wires) { plan.wires_of.insert(plan.wires_of.end(), wires.begin(), wires.end()); };
  for (const Operation& op : operations_) {
    switch (op.kind) {
      case Operation::load:
        plan.steps.push_back({StepKind::load, op.a, op.b, op.wire});
        break;
      case Operation::compare:
        extend(StepKind::compare, plan.pairs.size());
        plan.pairs.push_back({op.a, op.b});
        break;
      case Operation::displace:
        plan.steps.push_back(
            {StepKind::displace, static_cast<uint32_t>(plan.wires_of.size()), static_cast<uint32_t>(k_), op.b});
        list(lists_[op.a].first);
        list(lists_[op.a].second);
        break;
      case Operation::keep:
        extend(StepKind::keep, plan.wires_of.size());
        list({op.a});
        break;
    }
  }
  return plan;
}

Plan best_plan(int64_t n, int64_t k) {
  const int64_t most = n / (2 * k);  // below 2k clients a leaf's smallest and largest would overlap
  std::vector<int64_t> candidates{1,     2,           3,        4,   5, n / 16, (n + 15) / 16, n / 32, (n + 31) / 32,
                                  n / 8, (n + 7) / 8, most / 2, most};
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  std::unique_ptr<Builder> best;
  for (int64_t leaves : candidates) {
    if (leaves < 1 || leaves > std::max<int64_t>(most, 1)) continue;
    poll();
    auto builder = std::make_unique<Builder>(n, k, leaves);
    builder->build();
    if (!best || builder->cost() < best->cost()) best = std::move(builder);
  }
  return best->plan();
}

}  // namespace

PlanView Plan::view() const {
  return {steps.data(), pairs.data(),  wires_of.data(), static_cast<int64_t>(steps.size()),
          wires,        lowest.data(), highest.data()};
}

std::shared_ptr<const Plan> plan_for(int64_t n, int64_t k) {
  constexpr size_t kCached = 8;
  static std::list<std::shared_ptr<const Plan>> cache;
  {
    const std::lock_guard<std::mutex> lock(process_mutex());
    for (auto it = cache.begin(); it != cache.end(); ++it) {
      if ((*it)->n == n && (*it)->k == k) {
        cache.splice(cache.begin(), cache, it);
        return cache.front();
      }
    }
  }
  std::list<std::shared_ptr<const Plan>> made{std::make_shared<const Plan>(best_plan(n, k))}, old;
  const std::shared_ptr<const Plan> plan = made.front();
  const std::lock_guard<std::mutex> lock(process_mutex());  // nothing is allocated or built under it
  cache.splice(cache.begin(), made);
  if (cache.size() > kCached) old.splice(old.begin(), cache, std::prev(cache.end()));
  return plan;
}

}  // namespace fedincentive
