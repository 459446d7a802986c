"""file_hashes(folder): SHA-256 of every file below a folder, by its path in there."""
import hashlib
import os


def file_hashes(folder):
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
    return found
