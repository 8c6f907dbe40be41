"""scikit-learn's digits, shared among four clinics; a sixth of each clinic's digits is validation data."""

from core.dataset import BaseDataset
from sklearn.datasets import load_digits

CLINICS = ("north", "east", "south", "west")


class Dataset(BaseDataset):
    def __init__(self, data, test_only=False, user_idx=0, **kwargs):
        data = self.load_data(test_only) if data is None else data
        self.user_list, self.num_samples = data["users"], data["num_samples"]
        self.user_data, self.user_data_label = data["user_data"], data["user_data_label"]
        self.points = [
            point
            for user in (self.user_list if test_only or user_idx == -1 else [self.user_list[user_idx]])
            for point in zip(self.user_data[user], self.user_data_label[user], strict=True)
        ]

    def __getitem__(self, idx):
        return self.points[idx]

    def __len__(self):
        return len(self.points)

    def load_data(self, test_only):
        x, y = load_digits(return_X_y=True)
        x = (x / 16).astype("float32")
        parts = {
            name: [i for i in range(k, len(y), len(CLINICS)) if (i // len(CLINICS) % 6 == 0) == test_only]
            for k, name in enumerate(CLINICS)
        }
        return {
            "users": list(CLINICS),
            "num_samples": [len(parts[name]) for name in CLINICS],
            "user_data": {name: x[parts[name]] for name in CLINICS},
            "user_data_label": {name: y[parts[name]] for name in CLINICS},
        }
