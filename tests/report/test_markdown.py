"""README tables and the records that they are made from."""

import json
import shutil

import pytest

from coterie.recipe import recipe_names, recipes_folder
from coterie.report.markdown import fill, of_folder

FOLDERS = [
    (recipe, folder.name)
    for recipe in recipe_names()
    for folder in sorted((recipes_folder() / recipe / "results").glob("*"))
    if folder.is_dir()
]


@pytest.mark.parametrize("recipe", recipe_names())
def test_readme_tables_are_those_of_the_records(recipe):
    """Breaks when a figure in a README is typed, or a record changes and its README does not (make readmes)."""
    folder = recipes_folder() / recipe
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert fill(text, folder) == text
    for of, name in FOLDERS:
        if of == recipe:
            assert f"<!-- results: {name} -->" in text


def test_an_edited_record_changes_the_table(tmp_path):
    folder = tmp_path / "records"
    shutil.copytree(recipes_folder() / "talk-to-solve" / "results" / "pocket", folder)
    before = of_folder("talk-to-solve", folder)
    file = folder / "chat-seed17.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"score": 0.123}))
    after = of_folder("talk-to-solve", folder)
    assert "0.123" in after
    assert "0.123" not in before
    assert before.count("\n") == after.count("\n")
