"""The form and the links that a person follows, to where they lead."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import audit, axe_source
from tests.browser.conftest import NewVisitor
from tests.browser.pages_seen import AFTER_THE_FORM
from tests.browser.site import EVERY_FORMAT, LANDING_TITLE, UNKNOWN, WORK, Site
from tests.browser.test_browser_pages import SCHEMES, TELEPHONE, assert_fits
from tests.browser.watched import Visit

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.nightly]


async def enter(page: Page, text: str) -> None:
    field = page.get_by_label("DOI", exact=True)
    await field.fill(text)
    await field.press("Enter")


async def test_a_doi_typed_into_the_form_leads_to_the_work(visit: Visit, site: Site) -> None:
    page = await visit("/")
    await enter(page, WORK)
    await expect(page).to_have_url(site.landing)
    await expect(page).to_have_title(LANDING_TITLE)


async def test_no_script_is_needed(visitor: NewVisitor, site: Site) -> None:
    page = await (await visitor(java_script_enabled=False)).visit("/")
    await page.get_by_label("DOI", exact=True).fill(WORK)
    await page.get_by_role("button", name="Resolve").click()
    await expect(page).to_have_url(site.landing)


async def test_the_second_button_shows_the_record(visit: Visit, site: Site) -> None:
    page = await visit("/")
    await page.get_by_label("DOI", exact=True).fill(WORK)
    await page.get_by_role("button", name="Show the record").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("DOI record")
    table = page.get_by_role("table", name="Values of the record")
    await expect(table).not_to_be_visible()
    await page.get_by_text("Values of the record: 1").click()
    await expect(table).to_be_visible()
    await page.get_by_role("link", name="Go to the work").click()
    await expect(page).to_have_url(site.landing)


async def test_an_empty_form_is_not_sent(visit: Visit, site: Site) -> None:
    page = await visit("/")
    await enter(page, "")
    await expect(page).to_have_url(site.at("/"))
    await expect(page.get_by_label("DOI", exact=True)).to_be_focused()


async def test_the_doi_of_a_pasted_citation_is_one_button_away(visit: Visit, site: Site) -> None:
    page = await visit("/")
    await enter(page, f"Smith J (2021). A title. Journal 23(7):550. doi:{WORK}.")
    await expect(page.get_by_role("heading", level=1)).to_have_text("We found this DOI in your text")
    button = page.get_by_role("link", name="Go to the work")
    await expect(button).to_be_focused()
    await button.press("Enter")
    await expect(page).to_have_url(site.landing)


async def test_each_doi_of_a_pasted_text_has_a_button(visit: Visit, site: Site) -> None:
    page = await visit("/")
    await enter(page, f"{WORK} and {UNKNOWN}")
    buttons = page.get_by_role("link", name="Go to the work")
    await expect(buttons).to_have_count(2)
    await expect(buttons.first).to_have_accessible_description(WORK)
    await buttons.first.click()
    await expect(page).to_have_url(site.landing)


async def test_administrative_values_unfold(visit: Visit) -> None:
    page = await visit(f"/{EVERY_FORMAT}?noredirect")
    await page.get_by_text("Values of the record: 14").click()
    table = page.get_by_role("table", name="Administrative values")
    await expect(table).not_to_be_visible()
    await page.get_by_text("Administrative values: 4").click()
    await expect(table.get_by_role("row")).to_have_count(5)


async def test_one_click_on_a_name_or_its_uri_selects_it_whole_to_be_copied(visit: Visit) -> None:
    page = await visit(f"/{WORK}?noredirect")
    await page.get_by_text(WORK, exact=True).first.click()
    assert await page.evaluate("getSelection().toString()") == WORK
    await page.get_by_text(f"doi:{WORK}", exact=True).click()
    assert await page.evaluate("getSelection().toString()") == f"doi:{WORK}"


#: The headings in each language: of the pages that found a DOI and several, and of the checked bibliography.
HEADINGS = {
    "en": ("We found this DOI in your text", "DOIs in your text", "Check my references"),
    "de": ("Diese DOI steht in Ihrem Text", "Die DOIs in Ihrem Text", "Meine Literaturliste prüfen"),
    "fr": ("Ce DOI figure dans votre texte", "Les DOI de votre texte", "Vérifier ma bibliographie"),
    "es": ("Hemos encontrado este DOI en su texto", "Los DOI de su texto", "Comprobar mis referencias"),
}


@pytest.mark.parametrize("language", HEADINGS)
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_pages_after_a_form_fit_a_telephone_and_axe_finds_nothing(
    visitor: NewVisitor, language: str, scheme: str
) -> None:
    watched = await visitor(locale=language, viewport=TELEPHONE, color_scheme=scheme)
    await watched.context.add_init_script(axe_source())
    *found, checked = HEADINGS[language]
    for text, heading in zip(AFTER_THE_FORM.values(), found, strict=True):
        page = await watched.visit("/")
        await page.locator("[name=hdl]").first.fill(text)
        await page.locator("[name=hdl]").first.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text(heading, ignore_case=True)
        await assert_fits(page)
        assert (await audit(page))[0] == []
    page = await watched.visit("/references")
    await page.locator("textarea").fill(
        f"A work. {WORK}\n\nNothing. doi:{UNKNOWN}\n\nLong. {WORK}-{'long' * 40}\n\nNone"
    )
    await page.locator("main button").click()
    await expect(page.locator("tbody tr")).to_have_count(4)
    await expect(page.get_by_role("heading", level=1)).to_have_text(checked, ignore_case=True)
    await assert_fits(page)
    assert (await audit(page))[0] == []
