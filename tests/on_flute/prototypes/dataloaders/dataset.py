"""The three owners of data_parity, each with its own validation data; a point carries its number."""

import data_parity as task
from core.dataset import BaseDataset

from fedincentive.hosting import agent_name


class Dataset(BaseDataset):
    def __init__(self, data, test_only=False, user_idx=0, **kwargs):
        data = self.load_data(test_only) if data is None else data
        self.user_list, self.num_samples = data["users"], data["num_samples"]
        self.user_data, self.user_data_label = data["user_data"], data["user_data_label"]
        pairs = [zip(self.user_data[user], self.user_data_label[user], strict=True) for user in self.user_list]
        self.points = [point for own in pairs for point in own]

    def __getitem__(self, idx):
        return self.points[idx]

    def __len__(self):
        return len(self.points)

    def load_data(self, test_only):
        users = [agent_name(i, task.AGENTS) for i in range(task.AGENTS)]
        own = {user: task.data(i)[2:] if test_only else task.data(i)[:2] for i, user in enumerate(users)}
        return {
            "users": users,
            "num_samples": [len(y) for _, y in own.values()],
            "user_data": {user: [(i, row) for i, row in enumerate(x)] for user, (x, _) in own.items()},
            "user_data_label": {user: y for user, (_, y) in own.items()},
        }
