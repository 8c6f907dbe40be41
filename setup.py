from setuptools import setup

setup(
    packages=["fedincentive", "fedincentive.cli", "fedincentive.plugins"],
    package_dir={"fedincentive.plugins": "plugins"},
)
