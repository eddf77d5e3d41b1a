"""A plugin of pytest: a failed example of Hypothesis is not made smaller, since what fails is wanted broken."""

from hypothesis import Phase, settings

settings.register_profile("no shrinking", phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("no shrinking")
