"""What the words on the page mean."""

HOW = {
    "mean ± sd": """
        The mean over runs that differ in nothing but the seed, and their standard deviation (with n − 1). The 95 %
        interval is Student's, of the mean.""",
    "gain": """
        The difference between two variants with the same seed, averaged over the seeds that both have. It counts as
        positive in the claimed direction, also where lower is better.""",
    "p, Holm": """
        Two-sided paired t-test. An experiment makes several claims, so the p-values and intervals of all that it claims
        of one configuration are corrected together by Holm's step-down method; claims that were not run are counted,
        too. Each configuration is corrected by itself; fields that claims name do not tell them apart.""",
    "verdict": """
        By a rule that was fixed before the runs. Supported: the corrected 95 % interval of the gain lies above 0.
        Contradicted: it lies below 0. Undecided: it contains 0, and nothing is said for or against the claim. Too few
        runs: fewer than three pairs, or than the claim asks for. Not run: one side has no runs. Several claims together
        are mixed if their verdicts differ.""",
    "could show": """
        The smallest gain that so many pairs with this spread would have shown, by the same interval, in four of five
        cases. A smaller one may be there and not be seen.""",
    "the paper's gain": """
        The difference between the figures that the paper prints for the two variants, and how often so many pairs with
        our spread would show a gain of that size.""",
    "no evidence": """
        Runs made with --quick, to see that it works, those of racecar search, which chooses settings, and those with
        --other-data, whose files are not the published ones, are marked and have sections of their own. Nothing is
        judged by them.""",
    "same effect": """
        Some claims say that two settings do not differ by more than a margin, which was stated before the runs. Such a
        claim is supported if the corrected 95 % interval of the difference lies inside the margin on both sides, which
        is two one-sided t-tests, contradicted if it lies outside, and undecided otherwise. A seed that diverged under
        one setting alone leaves it undecided.""",
    "share of nets below": """
        Where accuracies have two humps, a net either learns the task or does not, and a mean says little. Such a claim
        is about the share of nets that fail, diverged ones among them, in pairs with the same seed; test and interval
        are exact (McNemar; Clopper and Pearson among the pairs that differ).""",
    "coefficient": """
        What a variant's regulariser is multiplied by. Of RR, lRR and RR1 it is λ, times the mean of the reconstruction
        errors over the constrained layers, so that it means the same for 3 and for 100 of them; of the paper's own loss
        (scale sum, reduction sum) it is the paper's λ, times their sum.""",
    "dead": """
        A net whose loss is finite and whose output is the same for every input, or that has a layer which sees nothing
        but zeros. That is an outcome of its own, and no gain of minus seventy points: gains are of the pairs in which
        both nets live, lost nets are counted beside them with an exact interval of their share (Clopper and Pearson)
        and McNemar's exact test, and where all pairs together would have another verdict the claim is undecided.
        Records from before this was looked at count by their output alone.""",
    "diverged": """
        A training whose loss was not finite any more. It is left out of means and pairs and counted with the lost nets:
        a mean over the survivors may flatter a variant that diverges.""",
    "spread": """
        Standard deviations of the two variants of a claim over the same seeds, with the p-value of Pitman and Morgan's
        test that they are the same. It is not corrected, and no verdict depends on it.""",
    "cost": """
        Median time of a training step, and peak memory, which is measured on GPUs alone (n/a: not measured, or nothing
        to compare with). Ratios are to Std with the same seed, at the same stage and setting, on the same engine and
        device; their median over the seeds is shown.""",
}
HOW = {name: " ".join(text.split()) for name, text in HOW.items()}
OF_CLAIMS = ("gain", "p, Holm", "verdict", "could show", "the paper's gain", "same effect", "spread")
"""Those that a page without claims does not need."""
