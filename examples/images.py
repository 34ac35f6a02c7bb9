"""Private synthetic images: digits with their labels, and a picture of them.

`image_shape` says that rows are images. Their moments are taken over the low frequencies of a public cosine basis. This
omits most of the directions that would contain noise alone.
"""

import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from skdpgen import P3GMSynthesizer
from skdpgen.datasets import load_digits_table

digits = load_digits_table()
synthesizer = P3GMSynthesizer(
    epsilon=3.0,
    bounds=digits.bounds,  # pixels are in 0..16: public
    classes=digits.classes,  # the ten classes are public too; otherwise they are learned and charged
    image_shape=digits.image_shape,
).fit(digits.data, digits.target)

X, y = synthesizer.sample(400)
print("drawn by the released class ratio:", np.bincount(y, minlength=10))
X, y = synthesizer.sample(y=np.repeat(digits.classes, 8))  # or draw the classes that you name
print("released number of rows:", round(synthesizer.row_count_))

figure = Figure(figsize=(6, 5), layout="constrained")
for ax, image, _ in zip(figure.subplots(8, 10).T.flat, X, y):
    ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
    ax.set_axis_off()
figure.suptitle("synthetic digits, epsilon 3")
path = Path(tempfile.mkdtemp()) / "synthetic_digits.png"
figure.savefig(path)
print("picture:", path)

print(synthesizer.accountant_.report().to_string(index=False))
